# SPDX-License-Identifier: Apache-2.0
"""Starts the tests' child processes ahead of the tests, as many at a time as there are cores.

A test marked `@pytest.mark.background(work=function)` names the function that does its runs; it is
called with the test's parameters in a pool, in the order of the tests, and the `background`
fixture gives its result (or raises its error) in the test itself.
"""

import concurrent.futures
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

FUTURE = pytest.StashKey()
POOL = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true",
                     help="all operator samples and all pairs of feature and network")


def pytest_configure(config):
    if config.getoption("--all"):
        os.environ["EBBTIDE_TEST_ALL"] = "1"
    config.addinivalue_line(
        "markers", "background(work=function): does the test's runs in the pool, ahead of the test")


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    workers = int(os.environ.get("EBBTIDE_TEST_JOBS", "0")) or len(os.sched_getaffinity(0))
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    session.config.stash[POOL] = pool
    for item in session.items:
        marker = item.get_closest_marker("background")
        if marker:
            spec = getattr(item, "callspec", None)
            item.stash[FUTURE] = pool.submit(marker.kwargs["work"], **(spec.params if spec else {}))


def pytest_sessionfinish(session):
    pool = session.config.stash.get(POOL, None)
    if pool:
        pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def background():
    """The result of the function that the test's `background` marker names (see below)."""


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    """probes/raw_pointers.cc, built against the torch of this interpreter."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    output = tmp_path_factory.mktemp("probe") / "raw_pointers.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-shared", "-w",
                    f"-isystem{torch / 'include'}", str(HERE / "probes" / "raw_pointers.cc"),
                    "-o", str(output), f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"], check=True)
    return output


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Waits for the runs in the test itself, so that what goes wrong in them fails the test."""
    future = pyfuncitem.stash.get(FUTURE, None)
    if future:
        pyfuncitem.funcargs["background"] = future.result()
