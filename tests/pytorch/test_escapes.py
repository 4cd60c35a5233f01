# SPDX-License-Identifier: Apache-2.0
"""Memory that is read without an operator has the right bytes, whatever was evicted before."""

import pytest

import harness


def test_the_cases_hold_without_ebbtide(probe):
    outcome = harness.run("escapes.py", "--probe", probe, managed=False).check()
    assert outcome.result["wrong"] == {}


@pytest.mark.parametrize("stress", ["evict-all", "evict-random:7:0.5"])
def test_escapes_see_the_right_bytes(probe, stress):
    outcome = harness.run("escapes.py", "--probe", probe, stress=stress).check()
    assert outcome.result["wrong"] == {}
    assert outcome.device()["evictions"] > outcome.result["cases"]
