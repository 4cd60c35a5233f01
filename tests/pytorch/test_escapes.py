# SPDX-License-Identifier: Apache-2.0
"""Memory that is read without an operator has the right bytes, whatever was evicted before."""

import importlib.util
import pathlib
import subprocess

import pytest

import harness

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """probes/raw_pointers.cc, built against the torch of this interpreter."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    output = tmp_path_factory.mktemp("probe") / "raw_pointers.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-shared", "-w",
                    f"-isystem{torch / 'include'}", str(HERE / "probes" / "raw_pointers.cc"),
                    "-o", str(output), f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"], check=True)
    return output


def test_the_cases_hold_without_ebbtide(probe):
    outcome = harness.run("escapes.py", "--probe", probe, managed=False).check()
    assert outcome.result["wrong"] == {}


@pytest.mark.parametrize("stress", ["evict-all", "evict-random:7:0.5"])
def test_escapes_see_the_right_bytes(probe, stress):
    outcome = harness.run("escapes.py", "--probe", probe, stress=stress).check()
    assert outcome.result["wrong"] == {}
    assert outcome.device()["evictions"] > outcome.result["cases"]
