#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what Ebbtide costs: seconds a training step, managed against plain.

Both sides are child processes that live through the whole measurement and train a step on demand,
so that plain and managed steps take turns and whatever else the machine does hits both alike; no
import or start is counted. Two tables:

  without pressure: a budget that nothing reaches. What is left is the price of watching; for the
      network of tiny tensors it is given in microseconds an operator call.
  in a budget: shares of what the program wanted at its peak, with the evictions a step, the share
      of the time that went into running calls again, and whether losses, parameters and buffers
      came out with the same bits.

The ratio is the median over all pairs of steps (with the quartiles in brackets) by the clock on
the wall, "cpu" the same by the processor time of all threads, which other programs disturb less.

usage: .venv/bin/python bench/pytorch/step_bench.py [--quick] [--pairs N] [--networks A,B]
Exit status 0 only if every comparison was made, all bits agree and no budget was exceeded. A
budget that is too small for the network is reported and is no failure.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARIES = (
    pathlib.Path(sys.prefix, "lib/ebbtide/libebbtide.so"),
    ROOT / ".venv/lib/ebbtide/libebbtide.so",
    ROOT / "bazel-bin/pytorch/libebbtide.so",
)
UNPRESSURED = ("resnet18", "densenet121", "vit", "lstm", "encoder", "mlp")
BUDGETED = ("resnet18", "densenet121", "vit", "lstm", "encoder")
NO_PRESSURE_BYTES = 16 << 30
WARMUP_STEPS = 2
# A side that lets wait for an answer this long makes no progress.
PATIENCE_SECONDS = 120


class SideFailed(Exception):
    """A child process ended, or never became what it should be. The text says why."""

    def __init__(self, text, out_of_memory=False):
        super().__init__(text)
        self.out_of_memory = out_of_memory


class Side:
    """A child that trains one network, plain or managed. A context manager: leaving ends it."""

    def __init__(self, network, threads, library=None, budget=None):
        self.library = library
        self.budget = budget
        self.walls, self.cpus = [], []
        self.gave_up = False
        self.folder = tempfile.TemporaryDirectory(prefix="ebbtide-bench-")
        self.stats_path = pathlib.Path(self.folder.name, "stats.json")
        self.errors_path = pathlib.Path(self.folder.name, "stderr")
        with open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "step_worker.py"), network, str(threads)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=self.environment(threads),
            )  # fmt: skip

    def environment(self, threads):
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("EBBTIDE_") and name != "LD_PRELOAD"
        }
        env.update(PYTHONHASHSEED="0", OMP_NUM_THREADS=str(threads))
        if self.library is not None:
            env.update(LD_PRELOAD=str(self.library), EBBTIDE_STATS_FILE=str(self.stats_path))
            if self.budget is not None:
                env.update(EBBTIDE_BUDGET=str(self.budget))
        return env

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def give_up(self):
        self.gave_up = True
        self.process.kill()

    def hear(self):
        """The child's next answer."""
        timer = threading.Timer(PATIENCE_SECONDS, self.give_up)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if line:
            return json.loads(line)
        self.process.wait()
        if self.gave_up:
            raise SideFailed(f"no answer in {PATIENCE_SECONDS} s")
        said = self.errors_path.read_text(errors="replace")
        raise SideFailed(
            f"the program ended with status {self.process.returncode}: {said.strip()[-3000:]}",
            out_of_memory="OutOfMemoryError" in said,
        )

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended; hear() says why.
        return self.hear()

    def step(self, counted):
        seconds = self.ask("step")
        if counted:
            self.walls.append(seconds["wall"])
            self.cpus.append(seconds["cpu"])
        return seconds["wall"]

    def finish(self):
        """Ends the child; returns what Ebbtide said about it, which proves that it was there."""
        self.process.stdin.close()
        self.process.wait()
        if self.process.returncode != 0:
            self.hear()
        if self.library is None:
            return None
        if not self.stats_path.exists():
            said = self.errors_path.read_text(errors="replace").strip()
            raise SideFailed(f"{self.library} did not manage the program: {said[-2000:]}")
        return json.loads(self.stats_path.read_text(encoding="utf-8"))


def train(network, options, steps, budget=None):
    """The statistics of a managed run by itself."""
    with Side(network, options.threads, options.library, budget) as side:
        side.hear()
        for _ in range(steps):
            side.step(counted=False)
        side.ask("digest")
        return side.finish()


def interleave(sides, pairs):
    """Lets all sides step in turn, each round begun by another one. Returns seconds by side.

    A side that fails is left out from then on and maps to the SideFailed; the first side must not.
    """
    spent = {}
    for side in sides:
        side.hear()
        spent[side] = 0.0
    for turn in range(WARMUP_STEPS + pairs):
        first = turn % len(sides)
        for side in sides[first:] + sides[:first]:
            if isinstance(spent[side], SideFailed):
                continue
            try:
                spent[side] += side.step(counted=turn >= WARMUP_STEPS)
            except SideFailed as failure:
                spent[side] = failure
    if isinstance(spent[sides[0]], SideFailed):
        raise spent[sides[0]]
    return spent


def quartiles(values):
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def compare(plain, managed):
    """The numbers of one pair of sides."""
    low, ratio, high = quartiles([b / a for a, b in zip(plain.walls, managed.walls)])
    return {
        "plain_seconds": statistics.median(plain.walls),
        "managed_seconds": statistics.median(managed.walls),
        "ratio": ratio,
        "ratio_quartiles": [low, high],
        "cpu_ratio": statistics.median(b / a for a, b in zip(plain.cpus, managed.cpus)),
        "pairs": len(managed.walls),
    }


def excess(plain, managed):
    return statistics.median(b - a for a, b in zip(plain, managed))


def measure_unpressured(network, options):
    """One row of the first table."""
    short = train(network, options, WARMUP_STEPS, NO_PRESSURE_BYTES)
    with (
        Side(network, options.threads) as plain,
        Side(network, options.threads, options.library, NO_PRESSURE_BYTES) as managed,
    ):
        spent = interleave([plain, managed], options.pairs)
        if isinstance(spent[managed], SideFailed):
            raise spent[managed]
        row = {"network": network, **compare(plain, managed)}
        row["identical"] = plain.ask("digest") == managed.ask("digest")
        # Both runs built the network and warmed up; they differ by the measured steps alone.
        calls = (managed.finish()["calls"] - short["calls"]) / options.pairs
        row["calls_per_step"] = calls
        row["us_per_call"] = 1e6 * excess(plain.walls, managed.walls) / calls if calls else None
        row["cpu_us_per_call"] = 1e6 * excess(plain.cpus, managed.cpus) / calls if calls else None
    return row


def budgeted_row(plain, managed, spent, expected):
    """What one budget cost; `expected` is the digest of the plain run."""
    row = compare(plain, managed)
    row["identical"] = managed.ask("digest") == expected
    steps = WARMUP_STEPS + len(managed.walls)
    device = managed.finish()["devices"][0]
    row["peak_held_bytes"] = device["peak_held_bytes"]
    row["evictions"] = device["evictions"]
    row["rebuilds"] = device["rebuilds"]
    row["evictions_per_step"] = device["evictions"] / steps
    row["recompute_seconds"] = device["recompute_seconds"]
    row["recompute_share"] = device["recompute_seconds"] / spent
    return row


def measure_budgeted(network, options):
    """The rows of the second table for one network: all its budgets share the plain steps."""
    wanted = train(network, options, WARMUP_STEPS + 1)["devices"][0]["peak_wanted_bytes"]
    budgets = {share: wanted * share // 100 for share in options.shares}
    rows = []
    with Side(network, options.threads) as plain:
        sides = {
            share: Side(network, options.threads, options.library, budget)
            for share, budget in budgets.items()
        }
        try:
            spent = interleave([plain, *sides.values()], options.pairs)
            expected = plain.ask("digest")
            for share, side in sides.items():
                row = {"network": network, "share_percent": share, "peak_wanted_bytes": wanted,
                       "budget_bytes": side.budget}  # fmt: skip
                if isinstance(spent[side], SideFailed):
                    row.update(failure=str(spent[side]), out_of_memory=spent[side].out_of_memory)
                else:
                    row.update(budgeted_row(plain, side, spent[side], expected))
                rows.append(row)
        finally:
            for side in sides.values():
                side.__exit__()
    return rows


def timing_columns(row):
    low, high = row["ratio_quartiles"]
    return (
        f"{1e3 * row['plain_seconds']:9.1f} {1e3 * row['managed_seconds']:9.1f} "
        f"{row['ratio']:7.3f} [{low:6.3f} {high:6.3f}] {row['cpu_ratio']:6.3f}"
    )


TIMING_HEAD = f"{'plain ms':>9} {'managed':>9} {'ratio':>7} [  quartiles  ] {'cpu':>6}"


def print_unpressured(row):
    def number(value):
        return "     -" if value is None else f"{value:6.2f}"

    print(
        f"{row['network']:<12} {timing_columns(row)} {row['calls_per_step']:8.0f} "
        f"{number(row['us_per_call'])} {number(row['cpu_us_per_call'])} "
        f"{'yes' if row['identical'] else 'NO':>9}",
        flush=True,
    )


def print_budgeted(row):
    head = f"{row['network']:<12} {row['share_percent']:3} % {row['budget_bytes'] / 2**20:7.1f}"
    if "failure" in row:
        # The report's first line where there is one, else all.
        reason = row["failure"].split("out of memory: asked for")[-1].split("\n")[0].strip()
        verdict = "does not fit, asked for" if row["out_of_memory"] else "FAILED:"
        print(f"{head} {verdict} {reason}", flush=True)
        return
    print(
        f"{head} {row['peak_held_bytes'] / 2**20:7.1f} {timing_columns(row)} "
        f"{row['evictions_per_step']:9.1f} {100 * row['recompute_share']:8.1f} % "
        f"{'yes' if row['identical'] else 'NO':>9}",
        flush=True,
    )


def run(options):
    """Measures and prints everything; returns (rows of both tables, what failed)."""
    results = {"pairs": options.pairs, "threads": options.threads, "unpressured": [],
               "budgeted": []}  # fmt: skip
    failures = []

    def attempt(measure, network):
        try:
            return measure(network, options)
        except SideFailed as failure:
            failures.append(f"{network}: {failure}")
            print(f"{network:<12} FAILED: {failure}", flush=True)
            return None

    print(f"{options.pairs} pairs of steps, {options.threads} threads, {options.library}\n")
    print(f"without pressure\n{'':<12} {TIMING_HEAD} {'calls':>8} us/call "
          f"{'cpu':>4} {'identical':>9}")  # fmt: skip
    for network in (name for name in UNPRESSURED if name in options.networks):
        row = attempt(measure_unpressured, network)
        if row is not None:
            print_unpressured(row)
            results["unpressured"].append(row)
    print(f"\nin a budget\n{'':<12} share     MiB    held {TIMING_HEAD} evictions recompute "
          f"{'identical':>10}")  # fmt: skip
    for network in (name for name in BUDGETED if name in options.networks):
        for row in attempt(measure_budgeted, network) or []:
            print_budgeted(row)
            results["budgeted"].append(row)
    for row in results["unpressured"] + results["budgeted"]:
        if "failure" in row and not row["out_of_memory"]:
            failures.append(f"{row['network']} at {row['share_percent']} %: {row['failure']}")
        if not row.get("identical", True):
            failures.append(f"{row['network']}: the bits differ")
        if row.get("peak_held_bytes", 0) > row.get("budget_bytes", 0):
            failures.append(f"{row['network']}: held more than the budget")
    return results, failures


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({*UNPRESSURED, *BUDGETED})
    parser.add_argument("--pairs", type=int, help="pairs of steps (15; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="few pairs, one budget: does it run?")
    parser.add_argument("--networks", default=",".join(names), help=f"of {','.join(names)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of each side (1)")
    parser.add_argument("--library", type=pathlib.Path, help="libebbtide.so (what was built)")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="also write all numbers")
    options = parser.parse_args()
    options.networks = options.networks.split(",")
    if unknown := set(options.networks) - set(names):
        parser.error(f"--networks {','.join(unknown)}: choose of {', '.join(names)}")
    if options.pairs is None:
        options.pairs = 3 if options.quick else 15
    if options.pairs < 1 or options.threads < 1:
        parser.error("--pairs and --threads must be at least 1")
    options.shares = (50,) if options.quick else (75, 50, 40)
    if options.library is None:
        options.library = next((path for path in LIBRARIES if path.exists()), None)
        if options.library is None:
            parser.error("libebbtide.so is not built: run tools/quickstart, or use --library")
    options.library = options.library.absolute()
    if not options.library.exists():
        parser.error(f"--library {options.library}: there is no such file")
    return options


def main():
    options = parse_arguments()
    results, failures = run(options)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
