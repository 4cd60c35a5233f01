# SPDX-License-Identifier: Apache-2.0
"""The preload shim alone, in processes without torch: a fake torch and a fake backend stand in."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import harness

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def compile_c(source, output, *options):
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{ROOT}", str(source),
                    "-o", str(output), *options], check=True)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A folder with a copy of the shim, the fake backend beside it and two fake torches."""
    folder = tmp_path_factory.mktemp("shim")
    shutil.copy(harness.library(), folder / "libebbtide.so")
    compile_c(HERE / "probes" / "fake_backend.c", folder / "libebbtide_torch_9_9.so")
    compile_c(HERE / "probes" / "openmp_workers.c", folder / "libworkers.so", "-fopenmp")
    (folder / "empty.c").write_text("int empty;\n")
    for name, version in (("good", "9.9.0+fake"), ("refuses", "9.9.1+refuses"), ("old", "1.2.3")):
        torch = folder / name / "torch"
        torch.mkdir(parents=True)
        (torch / "version.py").write_text(f"from typing import Any\n__version__ = '{version}'\n")
        compile_c(folder / "empty.c", torch / "_C.abi.so")
    return folder


def run(stage, code, **env):
    """Runs Python code under the staged shim; `load(name)` in it opens a fake torch."""
    head = ("import ctypes, sys, threading\n"
            f"stage = {str(stage)!r}\n"
            "load = lambda name: ctypes.CDLL(f'{stage}/{name}/torch/_C.abi.so')\n"
            "probe = lambda: ctypes.CDLL(f'{stage}/libebbtide_torch_9_9.so')\n")
    full = {**harness.clean_environment(), "LD_PRELOAD": str(stage / "libebbtide.so"), **env}
    return subprocess.run([sys.executable, "-c", head + code], env=full, capture_output=True,
                          text=True, timeout=60, check=False)


def test_silent_without_torch(stage):
    for argv in (["/bin/ls", "/"], ["/bin/sh", "-c", "exit 3"], [sys.executable, "-c", "pass"]):
        plain = subprocess.run(argv, capture_output=True, check=False)
        preloaded = subprocess.run(argv, capture_output=True, check=False,
                                   env={**os.environ, "LD_PRELOAD": str(stage / "libebbtide.so")})
        assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == (
            plain.returncode, plain.stdout, plain.stderr)


def test_runpath_of_the_caller_is_kept(stage):
    inner = stage / "inner"
    inner.mkdir()
    compile_c(stage / "empty.c", inner / "libneighbour.so")
    compile_c(HERE / "probes" / "runpath_caller.c", stage / "libcaller.so",
              "-Wl,--enable-new-dtags,-rpath,$ORIGIN/inner")
    result = run(stage, "print(ctypes.CDLL(f'{stage}/libcaller.so').open_neighbour())")
    assert result.stdout == "1\n", result.stderr


def test_unsupported_version_is_one_line_and_goes_on(stage):
    result = run(stage, "load('old'); load('old'); print('on'); sys.exit(7)")
    assert (result.returncode, result.stdout) == (7, "on\n")
    assert result.stderr.startswith("[ebbtide] torch 1.2.3 is not supported")
    assert result.stderr.count("\n") == 1


def test_strict_refuses(stage):
    result = run(stage, "load('old'); print('on')", EBBTIDE_STRICT="1")
    assert (result.returncode, result.stdout) == (2, "")
    assert "stopping, as EBBTIDE_STRICT asks" in result.stderr and result.stderr.count("\n") == 1


def test_backend_that_refuses(stage):
    result = run(stage, "load('refuses'); print('on')")
    assert (result.returncode, result.stdout) == (0, "on\n")
    assert result.stderr == "[ebbtide] the fake backend refuses; the program runs unmanaged\n"


def test_backend_learns_version_and_folder(stage):
    code = ("load('good'); p = probe()\n"
            "for f in (p.probe_version, p.probe_folder):\n"
            "    f.restype = ctypes.c_char_p\n"
            "    print(f().decode())\n")
    result = run(stage, code)
    assert result.stdout.splitlines() == ["9.9.0+fake", str(stage / "good" / "torch")]
    assert result.stderr == ""


def test_threads_are_armed_and_early_ones_counted(stage):
    code = ("stop = threading.Event()\n"
            "early = [threading.Thread(target=stop.wait) for _ in range(2)]\n"
            "for t in early: t.start()\n"
            "load('good'); p = probe()\n"
            "print(p.probe_armed(), p.probe_unarmed_threads())\n"
            "late = [threading.Thread(target=int) for _ in range(3)]\n"
            "for t in late: t.start()\n"
            "for t in late: t.join()\n"
            "stop.set()\n"
            "for t in early: t.join()\n"
            # join() returns shortly before a thread has ended.
            "import time; end = time.monotonic() + 10\n"
            "while p.probe_unarmed_threads() and time.monotonic() < end: time.sleep(0.01)\n"
            "print(p.probe_armed(), p.probe_unarmed_threads())\n")
    assert run(stage, code).stdout == "0 2\n3 0\n"


def test_openmp_workers_are_known_and_not_armed(stage):
    code = ("load('good'); p = probe()\n"
            "work = ctypes.CDLL(f'{stage}/libworkers.so').count_in_region\n"
            "print(work(p.probe_on_compute_worker), p.probe_armed())\n")
    assert run(stage, code).stdout == "2 0\n"


def test_child_of_fork_has_no_early_threads(stage):
    code = ("import os\n"
            "stop = threading.Event(); t = threading.Thread(target=stop.wait); t.start()\n"
            "load('good'); p = probe()\n"
            "pid = os.fork()\n"
            "if pid == 0: os._exit(10 + p.probe_unarmed_threads())\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), p.probe_unarmed_threads())\n"
            "stop.set(); t.join()\n")
    assert run(stage, code).stdout == "10 1\n"
