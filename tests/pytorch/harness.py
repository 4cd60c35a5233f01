# SPDX-License-Identifier: Apache-2.0
"""Runs plain PyTorch programs with and without Ebbtide and compares what they report.

A program is a file in programs/ that takes `--result PATH` and writes a JSON report there: named
digests of every quantity (see programs/digest.py). Nothing in a program knows of Ebbtide. The
test process never loads torch itself; each run is a child process of its own.

Environment: EBBTIDE_LIBRARY = libebbtide.so, EBBTIDE_COMMAND = the `ebbtide` command (default of
both: what Bazel built in this tree), EBBTIDE_TEST_ALL=1 = all cases instead of the usual
selection.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
TEST_ALL = os.environ.get("EBBTIDE_TEST_ALL", "") == "1"
MANAGED_TIMEOUT_SECONDS = 420


def built(variable, target):
    """The file that an environment variable names, else what Bazel built in this tree."""
    path = pathlib.Path(os.environ.get(variable, "") or ROOT / "bazel-bin" / target).absolute()
    if not path.exists():
        pytest.fail(f"no {path}: build //{target.replace('/', ':')} or set {variable}")
    return str(path)


def library():
    return built("EBBTIDE_LIBRARY", "pytorch/libebbtide.so")


def command():
    return built("EBBTIDE_COMMAND", "tools/ebbtide")


@dataclasses.dataclass
class Outcome:
    """What one run left behind. `result` and `stats` are None where the file was not written.

    `children_stats` holds the stats of the processes that the program started.
    """

    command: str
    status: int
    stdout: str
    stderr: str
    result: dict
    stats: dict
    peak_rss_bytes: int
    seconds: float
    cpu_seconds: float = 0
    children_stats: list = dataclasses.field(default_factory=list)

    def device(self, name="cpu"):
        """The stats of one device; fails the test when there are none."""
        assert self.stats is not None, f"no stats file was written\n{self.describe()}"
        for device in self.stats["devices"]:
            if device["device"] == name:
                return device
        raise AssertionError(f"stats without device {name!r}: {self.stats}\n{self.describe()}")

    def describe(self):
        """The command to repeat the run by hand, and the end of what it said."""
        return (f"command: {self.command}\nexit status: {self.status}, "
                f"{self.seconds:.1f} s\nstderr (end):\n{self.said(4000)}")

    def said(self, length):
        """The end of stderr, without the long list of modules that a crash prints last."""
        lines = [line for line in self.stderr.splitlines() if "Extension modules:" not in line]
        return "\n".join(lines)[-length:]

    def check(self):
        """Fails the test unless the program ended well and wrote its report."""
        assert self.status == 0, f"the program failed\n{self.describe()}"
        assert self.result is not None, f"the program wrote no report\n{self.describe()}"
        return self


def clean_environment():
    """The caller's environment without preloads and options; repeatable hashes, one thread."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("EBBTIDE_") and name != "LD_PRELOAD"}
    env.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
               TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    return env


def managed_environment(budget=None, stress=None, stats_file=None, env=None):
    """The variables that turn Ebbtide on in a child."""
    result = {"LD_PRELOAD": library()}
    if budget is not None:
        result["EBBTIDE_BUDGET"] = str(budget)
    if stress is not None:
        result["EBBTIDE_STRESS"] = stress
    if stats_file is not None:
        result["EBBTIDE_STATS_FILE"] = str(stats_file)
    result.update(env or {})
    return result


def wait_with_rusage(process, timeout):
    """Waits for a child; returns (exit status as subprocess gives it, its resource usage)."""
    deadline = time.monotonic() + timeout
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage
        if time.monotonic() > deadline:
            # SIGABRT first: with PYTHONFAULTHANDLER the child says where it hangs.
            os.kill(process.pid, signal.SIGABRT)
            time.sleep(2)
            os.kill(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + 60
        time.sleep(0.01)


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def launch(argv, env, timeout, folder, drive=None):
    """Runs argv to its end; `drive(process)` runs beside it (it may send signals)."""
    out, err = folder / "stdout", folder / "stderr"
    started = time.monotonic()
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, cwd=folder)
        if drive:
            threading.Thread(target=drive, args=(process,), daemon=True).start()
        status, usage = wait_with_rusage(process, timeout)
    seconds = time.monotonic() - started
    if seconds > timeout:
        status = f"timed out after {timeout} s"
    return (process.pid, status, usage, seconds, out.read_text(errors="replace"),
            err.read_text(errors="replace"))


def run(program, *args, managed=True, budget=None, stress=None, env=None, through=None,
        timeout=MANAGED_TIMEOUT_SECONDS, drive=None, report=True):
    """Runs programs/<program> in a child and gathers its Outcome.

    managed: preload Ebbtide (observing when neither budget nor stress is given).
    through: a list of options; the program is then started by `ebbtide run <options> --`.
    report: pass `--result PATH` to the program.
    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ebbtide-test-"))
    try:
        argv = [sys.executable, "-X", "faulthandler", str(PROGRAMS / program), *map(str, args)]
        if report:
            argv += ["--result", str(folder / "result.json")]
        extra = dict(env or {})
        if through is not None:
            argv = [command(), "run", "--stats-file", str(folder / "stats.%p.json"), *through,
                    "--", *argv]
        elif managed:
            extra = managed_environment(budget, stress, folder / "stats.%p.json", env)
        pid, status, usage, seconds, stdout, stderr = launch(
            argv, {**clean_environment(), **extra}, timeout, folder, drive)
        shown = [f"{name}={value}" for name, value in extra.items()] + argv
        own = folder / f"stats.{pid}.json"
        others = [read_json(path) for path in folder.glob("stats.*.json") if path != own]
        return Outcome(" ".join(shown).replace(str(folder), "/tmp"), status, stdout, stderr,
                       read_json(folder / "result.json"), read_json(own),
                       usage.ru_maxrss * 1024, seconds, usage.ru_utime + usage.ru_stime, others)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def memoized(function):
    """One computation per argument list, also when several threads ask at the same time."""
    lock, futures = threading.Lock(), {}

    def call(*args, **kwargs):
        key = (args, tuple(sorted(kwargs.items())))
        with lock:
            future = futures.get(key)
            mine = future is None
            if mine:
                future = futures[key] = concurrent.futures.Future()
        if mine:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # pytest's own failures included
                future.set_exception(error)
        return future.result()

    call.__name__ = function.__name__
    return call


class PlainServers:
    """Runs of train.py without Ebbtide, forked from processes that have imported torch already.

    Saves the seconds that importing takes. One server runs one program at a time.
    """

    def __init__(self):
        self.idle = queue.SimpleQueue()

    def server(self):
        try:
            return self.idle.get_nowait()
        except queue.Empty:
            return subprocess.Popen(
                [sys.executable, str(PROGRAMS / "serve.py")], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=clean_environment())

    def run(self, *args):
        with tempfile.TemporaryDirectory(prefix="ebbtide-test-") as name:
            folder = pathlib.Path(name)
            result, stderr = folder / "result.json", folder / "stderr"
            started, server = time.monotonic(), self.server()
            request = [str(stderr), *map(str, args), "--result", str(result)]
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
            self.idle.put(server)
            shown = f"{sys.executable} {PROGRAMS}/train.py {' '.join(map(str, args))}"
            return Outcome(shown, status, "", stderr.read_text(errors="replace"),
                           read_json(result), None, 0, time.monotonic() - started)


PLAIN_SERVERS = PlainServers()


@memoized
def plain(program, *args, **kwargs):
    """The unmanaged run of a program, which every managed one is compared with."""
    if program == "train.py" and not kwargs:
        return PLAIN_SERVERS.run(*args).check()
    return run(program, *args, managed=False, **kwargs).check()


@memoized
def observed(program, *args, **kwargs):
    """The managed run without a budget: how much the program wanted."""
    outcome = run(program, *args, **kwargs).check()
    assert_same(plain(program, *args, **kwargs), outcome)
    return outcome


def assert_same(expected, actual):
    """Fails unless both runs reported the same, naming the first quantity that differs."""
    actual.check()
    if expected.result["digest"] == actual.result["digest"]:
        return
    left, right = expected.result["records"], actual.result["records"]
    differing = [(a, b) for a, b in zip(left, right) if a != b]
    if not differing:
        raise AssertionError(f"the runs reported {len(left)} and {len(right)} quantities\n"
                             f"{actual.describe()}")
    (name, _, shown), (other, _, other_shown) = differing[0]
    raise AssertionError(
        f"{len(differing)} of {len(left)} quantities differ; the first is {name!r}: plain "
        f"{shown or 'digest'} and managed {other_shown or 'digest'}"
        f"{'' if name == other else f' (named {other!r} there)'}\n{actual.describe()}")


def budget_between(program, *args, share):
    """(budget, floor, wanted): `share` of the way from the program's floor to its wanted peak."""
    outcome = observed(program, *args)
    wanted = outcome.device()["peak_wanted_bytes"]
    floor = outcome.result["floor_bytes"]
    assert floor < wanted, f"floor {floor} is not below the wanted peak {wanted}"
    return int(floor + share * (wanted - floor)), floor, wanted


def ran_out_of_memory(outcome):
    """Whether the run ended with our report of too little memory, and with nothing else."""
    return (outcome.status == 1 and "OutOfMemoryError" in outcome.stderr
            and "budget" in outcome.stderr)


def compare(program, *args, **options):
    """Plain and managed with these options: the same bits. Returns the managed outcome."""
    expected = plain(program, *args)
    actual = run(program, *args, **options)
    assert_same(expected, actual)
    return actual
