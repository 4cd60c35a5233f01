# SPDX-License-Identifier: Apache-2.0
"""When something goes wrong: consistent afterwards, the right error, the right exit status."""

import importlib.util
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from torch.cuda import _memory_viz

import harness

MIB = 1 << 20
STATS_FIELDS = {"version", "torch", "pid", "devices", "calls", "wall_seconds"}
DEVICE_FIELDS = {
    "device", "budget_bytes", "peak_held_bytes", "peak_wanted_bytes", "evictions", "rebuilds",
    "recomputed_calls", "recompute_seconds", "evicted_bytes", "out_of_memory_errors",
    "largest_pinned_bytes", "memory"}


def our_lines(outcome):
    return [line for line in outcome.stderr.splitlines() if line.startswith("[ebbtide]")]


def check_stats(outcome):
    assert outcome.stats is not None, outcome.describe()
    assert STATS_FIELDS <= set(outcome.stats), outcome.stats
    assert outcome.stats["calls"] > 0 and outcome.stats["wall_seconds"] > 0, outcome.stats
    assert DEVICE_FIELDS <= set(outcome.device()), outcome.stats
    memory = outcome.device()["memory"]
    assert memory["small"]["allocations"] > 0, memory
    for kind in memory.values():
        levels = [kind[f"{name}_bytes"] for name in ("live", "awaiting", "cached", "held")]
        assert sum(level["current"] for level in levels[:3]) == levels[3]["current"], memory
        assert all(level["allocated"] - level["freed"] == level["current"] <= level["peak"]
                   for level in levels), memory


def under_stress(program):
    return harness.compare("errors.py", program, stress="evict-all")


@pytest.mark.background(work=under_stress)
@pytest.mark.parametrize("program", ("throwing", "throwing_backward", "closed_descriptors"))
def test_evict_all(program, background):
    assert background.device()["evictions"] > 0, background.describe()


def deep_chain():
    return harness.compare("errors.py", "deep_chain", stress="evict-random:1:0.0001")


@pytest.mark.background(work=deep_chain)
def test_deep_chain(background):
    """Rebuilds that run thousands of calls in a row."""
    device = background.device()
    assert device["recomputed_calls"] > 5000, background.describe()
    assert device["recomputed_calls"] > 500 * device["rebuilds"], background.describe()


def send_interrupts(process):
    """Bursts of SIGINT at seeded intervals, for as long as the process lives."""
    generator = random.Random(5)
    while process.returncode is None:
        for _ in range(generator.randrange(1, 4)):
            try:
                os.kill(process.pid, signal.SIGINT)
            except ProcessLookupError:
                return
            time.sleep(generator.random() * 0.003)
        time.sleep(0.02 + 0.2 * generator.random())


def said_by(process):
    """What a running child has written to stderr so far (it is a file)."""
    try:
        return pathlib.Path(f"/proc/{process.pid}/fd/2").read_text(errors="replace")
    except OSError:
        return ""


def interrupted(options):
    expected = harness.plain("errors.py", "interrupted")
    outcome = harness.run("errors.py", "interrupted", drive=interrupts_when_ready, **options)
    harness.assert_same(expected, outcome)
    return outcome


def interrupts_when_ready(process):
    """The program installs its handler when it is ready; before that SIGINT would end it."""
    while process.returncode is None:
        if "ready" in said_by(process):
            send_interrupts(process)
        time.sleep(0.05)


INTERRUPTED = {"evict-all": {"stress": "evict-all"},
               "evict-random": {"stress": "evict-random:9:0.4"}}


@pytest.mark.background(work=lambda mode: interrupted(INTERRUPTED[mode]))
@pytest.mark.parametrize("mode", INTERRUPTED)
def test_keyboard_interrupts(mode, background):
    assert background.result["interrupts"] > 0, background.describe()
    assert background.device()["rebuilds"] > 0, background.describe()


def refused():
    return harness.compare("errors.py", "out_of_memory", budget=200 * MIB)


@pytest.mark.background(work=refused)
def test_out_of_memory(background):
    """torch's own error type with our report; the program frees and goes on, bits unchanged."""
    result, device = background.result, background.device()
    assert result["is_out_of_memory"], result
    assert result["refused"].endswith("OutOfMemoryError"), result
    assert 10 < result["blocks_before_refusal"] < 26, result
    for word in ("asked", "budget", "held", "live", "pinned", "cached"):
        assert word in result["text"].lower(), result["text"]
    # numpy has the blocks' addresses, though no operator of theirs was ever recorded.
    escaped = re.search(r"address known outside .*: (\d+)[\d.]* MiB", result["text"])
    assert 8 * result["blocks_before_refusal"] <= int(escaped.group(1)) <= 200, result["text"]
    assert device["escaped_bytes"] >= 8 * MIB * result["blocks_before_refusal"], device
    assert "OutOfMemoryError" in result["huge"], result
    assert device["out_of_memory_errors"] >= 1, device
    assert device["peak_held_bytes"] <= 200 * MIB, device


BAD_OPTIONS = {
    "EBBTIDE_BUDGET": "many", "EBBTIDE_STRESS": "sometimes", "EBBTIDE_POLICY": "none-such",
    "EBBTIDE_MIN_BYTES": "-3", "EBBTIDE_DEVICES": "abacus"}


def bad_option(name):
    expected = harness.plain("errors.py", "trains")
    outcome = harness.run("errors.py", "trains", env={name: BAD_OPTIONS[name]})
    harness.assert_same(expected, outcome)
    strict = harness.run("errors.py", "trains",
                         env={name: BAD_OPTIONS[name], "EBBTIDE_STRICT": "1"})
    return outcome, strict


@pytest.mark.background(work=bad_option)
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_option(name, background):
    """Only preloaded: one line, unmanaged. Strict: the program does not go on."""
    outcome, strict = background
    lines = our_lines(outcome)
    assert len(lines) == 1, outcome.describe()
    assert name in lines[0] and BAD_OPTIONS[name] in lines[0], lines
    assert outcome.stats is None, outcome.stats
    assert strict.status not in (0, None) and strict.result is None, strict.describe()
    assert any(name in line for line in our_lines(strict)), strict.describe()


def bad_option_through_the_command():
    return harness.run("errors.py", "trains", through=["--budget", "many"])


@pytest.mark.background(work=bad_option_through_the_command)
def test_bad_option_through_the_command(background):
    assert background.status == 2, background.describe()
    assert background.result is None, background.describe()
    assert len(background.stderr.splitlines()) == 1 and "many" in background.stderr


def environment(tmp_path, **extra):
    return {**harness.clean_environment(),
            **harness.managed_environment(stats_file=tmp_path / "stats.json", env=extra)}


def run_silent(argv, tmp_path):
    done = subprocess.run(argv, env=environment(tmp_path, EBBTIDE_BUDGET="64MiB"), text=True,
                          capture_output=True, timeout=60, check=False)
    assert not (tmp_path / "stats.json").exists()
    return done.returncode, done.stdout, done.stderr


def test_silent_without_torch(tmp_path):
    assert run_silent(["sh", "-c", "echo hello; exit 5"], tmp_path) == (5, "hello\n", "")
    code = "import threading, ctypes, json; t = threading.Thread(target=print, args=('x',)); " \
           "t.start(); t.join(); raise SystemExit(6)"
    assert run_silent([sys.executable, "-c", code], tmp_path) == (6, "x\n", "")
    missing = run_silent(["sh", "-c", "no-such-command-here"], tmp_path)
    assert missing[0] == 127 and "ebbtide" not in missing[2].replace("no-such", "")


HOLDS_FOUR_MEBIBYTES = "import torch; x = torch.ones(1 << 20); y = x * 2; print(float(y.sum()))"
RUNS_OUT = HOLDS_FOUR_MEBIBYTES + """
try:
    torch.empty(1 << 30)
except torch.OutOfMemoryError:
    del x, y
"""


def run_for_snapshot(program, folder, name):
    extra = {"EBBTIDE_BUDGET": "64MiB", "EBBTIDE_SNAPSHOT_FILE": str(folder / name)}
    subprocess.run([sys.executable, "-c", program], env=environment(folder, **extra), check=True,
                   capture_output=True, timeout=120)
    return next(folder.glob("snapshot.*"))


@pytest.mark.parametrize("program", [HOLDS_FOUR_MEBIBYTES, RUNS_OUT], ids=["exit", "out_of_memory"])
def test_snapshot_file(program, tmp_path):
    """PyTorch's own reader opens it. It shows the moment at which memory ran out, if it did."""
    path = run_for_snapshot(program, tmp_path, "snapshot.%p.pickle")
    snapshot = pickle.loads(path.read_bytes())
    assert "%" not in path.name
    if program is RUNS_OUT:
        sizes = [block["requested_size"] for segment in snapshot["segments"]
                 for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert len([size for size in sizes if 4 << 20 <= size < 5 << 20]) == 2, sizes
    actions = {event["action"] for trace in snapshot["device_traces"] for event in trace}
    assert "alloc" in actions and ("oom" in actions) == (program is RUNS_OUT), actions
    assert "MiB" in _memory_viz.segsum(snapshot)


def test_snapshot_as_a_log(tmp_path):
    path = run_for_snapshot(HOLDS_FOUR_MEBIBYTES, tmp_path, "snapshot.csv")
    lines = path.read_text().splitlines()
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream"
    assert any(",allocate,0x" in line for line in lines)


FAKE_TORCH = """
import importlib.machinery, importlib.util, os
from .version import __version__
folder = os.path.dirname(__file__)
path = os.path.join(folder, [n for n in os.listdir(folder) if n.startswith("_C")][0])
loader = importlib.machinery.ExtensionFileLoader("_C", path)
spec = importlib.util.spec_from_loader("_C", loader)
_C = importlib.util.module_from_spec(spec)
"""
FAKE_C = """
typedef struct { long refs; void* type; void* init; long index; void* copy; } Head;
typedef struct { Head head; const char* name; const char* doc; long size; void* methods;
                 void* slots; void* traverse; void* clear; void* free; } Definition;
extern void* PyModule_Create2(Definition*, int);
static Definition definition = {{1, 0, 0, 0, 0}, "_C", 0, -1, 0, 0, 0, 0, 0};
void* PyInit__C(void) { return PyModule_Create2(&definition, 1013); }
"""


def make_fake_torch(folder, version):
    """A package that looks like torch of another version: its _C loads, nothing more."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE_TORCH)
    (package / "version.py").write_text(f"__version__ = '{version}'\n")
    source = package / "fake.c"
    source.write_text(FAKE_C)
    target = package / "_C.cpython-311-x86_64-linux-gnu.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)


@pytest.mark.parametrize("version", ("1.13.1", "3.0.0+cpu", "2.12.0a0+git123"))
@pytest.mark.parametrize("strict", (False, True))
def test_unsupported_torch(tmp_path, version, strict):
    make_fake_torch(tmp_path, version)
    code = "import torch; print(torch.__version__); raise SystemExit(9)"
    extra = {"PYTHONPATH": str(tmp_path), **({"EBBTIDE_STRICT": "1"} if strict else {})}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment(tmp_path, **extra),
                          capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in done.stderr.splitlines() if "[ebbtide]" in line]
    assert len(lines) == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert version.split("+")[0].split("a")[0].rsplit(".", 1)[0] in lines[0], lines
    assert not (tmp_path / "stats.json").exists()
    if strict:
        assert done.returncode not in (0, 9) and version not in done.stdout, done
    else:
        assert done.returncode == 9 and done.stdout == version + "\n", done


ENDS = {"uncaught": 1, "leaves_by_exit": 7, "trains": 0, "nothing": 0}


@pytest.mark.background(work=lambda program: harness.run("errors.py", program, stress="evict-all"))
@pytest.mark.parametrize("program", ENDS)
def test_stats_at_every_kind_of_end(program, background):
    assert background.status == ENDS[program], background.describe()
    assert len(our_lines(background)) <= 10, background.describe()
    if program == "uncaught":
        assert "ValueError: the program's own" in background.stderr, background.describe()
    if program != "nothing":
        check_stats(background)
        assert background.device()["evictions"] > 0, background.stats
        assert background.stats["torch"].startswith(("2.11", "2.15")), background.stats


def killed():
    return harness.run("errors.py", "waits", stress="evict-random:1:0.5", report=False,
                       drive=terminate_when_ready)


def terminate_when_ready(process):
    while process.returncode is None:
        if "ready" in said_by(process):
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGTERM)
            return
        time.sleep(0.05)


@pytest.mark.background(work=killed)
def test_ended_by_a_signal(background):
    assert background.status == -signal.SIGTERM, background.describe()


def verified(program):
    return harness.compare("errors.py", program, stress="evict-all", env={"EBBTIDE_VERIFY": "1"})


@pytest.mark.background(work=verified)
@pytest.mark.parametrize("program", ("trains", "throwing"))
def test_verify_mode_agrees(program, background):
    assert background.device()["rebuilds"] > 0, background.describe()


@pytest.mark.background(work=lambda: harness.run(
    "errors.py", "restless", stress="evict-all", env={"EBBTIDE_VERIFY": "1"}))
def test_verify_mode_stops_at_other_bytes(background):
    assert background.status == 1, background.describe()
    assert "verify: aten::ebbtide_restless gave other bytes" in background.stderr, (
        background.describe())


def checked(program, **options):
    return harness.run("errors.py", program, env={"EBBTIDE_CHECK": "1"}, **options)


FAULTS = {
    "writes_past_the_end": ("overrun: 4 bytes were written past a block, from 0 after its end",
                            "07 07 07 07", "allocated by thread", "freed by thread"),
    "writes_before_the_start": ("the bytes before it were overwritten", "4064 bytes",
                                "allocated by thread"),
    "writes_to_a_released_tensor": ("use after free: 4 bytes were written to a freed block, "
                                    "from byte 464", "allocated by thread", "freed by thread"),
    "writes_past_a_global": ("overrun: 4 bytes", "live", "allocated by thread")}


@pytest.mark.background(work=checked)
@pytest.mark.parametrize("program", FAULTS)
def test_check_mode_reports_foreign_writes(program, background):
    """In our words, with the stacks on which the block was allocated and freed."""
    assert background.status == -signal.SIGABRT, background.describe()
    for words in FAULTS[program]:
        assert words in background.stderr, (words, background.stderr)
    assert "at::native::arange" in background.stderr, "no frame of torch: " + background.stderr


def checked_training(options):
    return harness.compare("errors.py", "trains", env={"EBBTIDE_CHECK": "1"}, **options)


CHECKED = {"observing": {}, "evict-all": {"stress": "evict-all"}, "budget": {"budget": 6 * MIB}}


@pytest.mark.background(work=lambda mode: checked_training(CHECKED[mode]))
@pytest.mark.parametrize("mode", CHECKED)
def test_check_mode_finds_nothing_in_a_correct_program(mode, background):
    """The same bits; red zones and quarantine stay inside the budget."""
    device = background.device()
    if mode == "evict-all":
        assert device["evictions"] > 0, device
    if mode == "budget":
        assert 5 * MIB < device["peak_held_bytes"] <= 6 * MIB, device


def build_ticking(folder):
    """Compiles the operator of programs/ticking.cc for the torch that runs the tests."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    target = folder / "libticking.so"
    include = torch / "include"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-DNDEBUG", f"-I{include}",
         f"-I{include / 'torch/csrc/api/include'}", "-o", target,
         harness.PROGRAMS / "ticking.cc", f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"], check=True)
    return {"TICKING_LIBRARY": str(target)}


def own_operators(verify):
    with tempfile.TemporaryDirectory() as folder:
        env = build_ticking(pathlib.Path(folder))
        plain = harness.run("errors.py", "own_operators", managed=False, env=env).check()
        return plain, harness.run("errors.py", "own_operators", stress="evict-all",
                                  env={**env, "EBBTIDE_VERIFY": verify})


@pytest.mark.background(work=own_operators)
@pytest.mark.parametrize("verify", ("0", "1"))
def test_operators_with_a_state_of_their_own(verify, background):
    """They must not run twice: the same bits, or an end that names the operator."""
    plain, managed = background
    if managed.status == 0:
        harness.assert_same(plain, managed)
        assert managed.device()["evictions"] > 0, managed.describe()
    else:
        assert "ebbtide_test::" in managed.stderr, managed.describe()


def quiet_run():
    return harness.run("errors.py", "trains", stress="evict-all", env={"EBBTIDE_QUIET": "1"})


@pytest.mark.background(work=quiet_run)
def test_quiet_prints_nothing(background):
    background.check()
    assert our_lines(background) == [], background.describe()
    check_stats(background)
