# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of a training step run, and do not take an unmanaged process, or one with the
usual malloc, for a fast one."""

import json
import subprocess
import sys

import harness

BENCH = harness.ROOT / "bench" / "pytorch" / "step_bench.py"
RATIO = harness.ROOT / "bench" / "allocator" / "step_ratio.py"


def run(program, *args):
    return subprocess.run(
        [sys.executable, str(program), "--quick", "--pairs", "1", *map(str, args)],
        env=harness.clean_environment(), capture_output=True, text=True,
        timeout=harness.MANAGED_TIMEOUT_SECONDS,
    )  # fmt: skip


def bench(*args):
    return run(BENCH, *args)


def empty_library(folder):
    """Can be preloaded, and changes nothing."""
    path = folder / "libnothing.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(path)], check=True)
    return path


def test_both_tables(tmp_path):
    done = bench("--networks", "mlp,vit", "--json", tmp_path / "numbers.json",
                 "--library", harness.library())
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    rows = {row["network"]: row for row in numbers["unpressured"]}
    assert rows.keys() == {"mlp", "vit"}
    assert all(row["identical"] and row["pairs"] == 1 for row in rows.values())
    free = rows["mlp"]
    # 50 rounds of 9 layers forwards and backwards, at least.
    assert free["calls_per_step"] > 50 * 9 * 2
    assert free["plain_seconds"] > 0 and free["managed_seconds"] > 0
    (tight,) = numbers["budgeted"]
    assert tight["network"] == "vit" and tight["identical"]
    assert tight["evictions"] > 0 and 0 < tight["recompute_share"] < 1
    assert tight["peak_held_bytes"] <= tight["budget_bytes"] < tight["peak_wanted_bytes"]
    assert "mlp" in done.stdout and " 50 %" in done.stdout


def test_an_unmanaged_process_is_a_failure(tmp_path):
    done = bench("--networks", "mlp", "--library", empty_library(tmp_path))
    assert done.returncode == 1
    assert "did not manage" in done.stderr


def test_wrong_arguments_are_refused(tmp_path):
    for args in (("--networks", "mlp,nothing"), ("--pairs", "0"), ("--library", tmp_path / "no")):
        done = bench(*args)
        assert done.returncode == 2
        assert args[0] in done.stderr


def test_ratio_beside_preloaded_allocators(tmp_path):
    done = run(RATIO, "--networks", "gpt", "--library", harness.library(),
               "--preload", f"other={empty_library(tmp_path)}",
               "--json", tmp_path / "numbers.json")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert set(numbers["step_ratio"]["gpt"]) == {"ebbtide", "other"}
    assert all(0.1 < ratio < 10 for ratio in numbers["step_ratio"]["gpt"].values())
    assert numbers["step"]["gpt"]["ebbtide"]["identical"]


def test_an_allocator_that_is_not_there_is_a_failure(tmp_path):
    done = run(RATIO, "--networks", "gpt", "--preload", f"other={tmp_path}/libabsent.so")
    assert done.returncode == 1
    assert "libabsent.so was not preloaded" in done.stderr
