# SPDX-License-Identifier: Apache-2.0
"""Trains one network three times, each in a process of its own, and compares the results to the
bit.

1. plain; 2. under `ebbtide run` without a budget, which shows how much the program wanted at its
peak; 3. under `ebbtide run --budget`, by default with half of that. Ends with a table; exit status
0 only if the three digests are equal and the peak held is within the budget.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples" / "pytorch" / "train_classifier.py"


def share(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: more than 0 and at most 1")
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tools/quickstart", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", default="resnet50", help="any torchvision classification model (resnet50)"
    )
    parser.add_argument("--batch", type=int, default=64, help="images a step (64)")
    parser.add_argument("--steps", type=int, default=8, help="training steps (8)")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--budget", metavar="BYTES", help="budget of the third run: 700m, 0.6GiB, plain bytes"
    )
    budget.add_argument(
        "--share", type=share, default=0.5, help="budget as a share of the wanted peak (0.5)"
    )
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    parser.add_argument("--ebbtide", help=argparse.SUPPRESS)
    return parser.parse_args()


def stop(reason, remedy):
    print(f"FAILED: {reason}\n  remedy: {remedy}", file=sys.stderr)
    sys.exit(1)


class Run:
    """One finished training run: what the program and what Ebbtide said about it."""

    def __init__(self, name, result, stats, peak_rss_bytes):
        self.name = name
        self.digest = result["digest"]
        self.seconds_per_step = result["seconds_per_step"]
        self.peak_rss_bytes = peak_rss_bytes
        # None for the plain run, whose program knows nothing of Ebbtide.
        self.device = (
            next((d for d in stats["devices"] if d["device"] == "cpu"), None) if stats else None
        )

    def value(self, key):
        return self.device.get(key) if self.device else None


def train(name, arguments, launcher, folder):
    """Runs the training program behind `launcher` (a list, empty for plain) and waits for it."""
    result_path, stats_path = folder / f"{name}.json", folder / f"{name}.stats.json"
    command = [
        arguments.python,
        str(PROGRAM),
        "--model",
        arguments.model,
        "--batch",
        str(arguments.batch),
    ]
    command += ["--steps", str(arguments.steps), "--result", str(result_path)]
    if launcher:
        command = launcher + ["--stats-file", str(stats_path), "--"] + command
    print(f"-- {name}: {' '.join(command)}", file=sys.stderr, flush=True)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        stop(
            f"the {name} run ended with {child.returncode}",
            "read its lines above; if memory ran out, allow more with --share or --budget",
        )
    stats = None
    if launcher:
        if not stats_path.exists():
            stop(
                f"the {name} run wrote no statistics",
                f"see `{arguments.ebbtide} doctor -- {arguments.python}`",
            )
        stats = json.loads(stats_path.read_text())
    run = Run(name, json.loads(result_path.read_text()), stats, usage.ru_maxrss * 1024)
    if launcher and run.device is None:
        stop(
            f"the {name} run was not managed",
            f"see `{arguments.ebbtide} doctor -- {arguments.python}`",
        )
    return run


def train_all(arguments):
    launcher = [arguments.ebbtide, "run"]
    with tempfile.TemporaryDirectory(prefix="ebbtide-quickstart-") as name:
        folder = pathlib.Path(name)
        plain = train("plain", arguments, [], folder)
        observed = train("observed", arguments, launcher, folder)
        budget = arguments.budget or str(int(observed.value("peak_wanted_bytes") * arguments.share))
        managed = train("budget", arguments, launcher + ["--budget", budget], folder)
    return [plain, observed, managed]


def size(count):
    return "-" if count is None else f"{count / 2**20:.0f} MiB"


def number(count):
    return "-" if count is None else str(count)


def print_table(runs):
    plain = runs[0]
    rows = [
        ("", [run.name for run in runs]),
        ("budget", [size(run.value("budget_bytes") if run is runs[-1] else None) for run in runs]),
        ("peak wanted", [size(run.value("peak_wanted_bytes")) for run in runs]),
        ("peak held", [size(run.value("peak_held_bytes")) for run in runs]),
        ("process peak RSS", [size(run.peak_rss_bytes) for run in runs]),
        ("evictions", [number(run.value("evictions")) for run in runs]),
        ("rebuilds", [number(run.value("rebuilds")) for run in runs]),
        ("seconds a step", [f"{run.seconds_per_step:.3f}" for run in runs]),
        (
            "ratio to plain",
            [f"{run.seconds_per_step / plain.seconds_per_step:.2f}" for run in runs],
        ),
        ("SHA-256", [run.digest[:16] for run in runs]),
    ]
    print()
    for title, cells in rows:
        print(f"{title:<18}" + "".join(f"{cell:>18}" for cell in cells))
    for run in runs:
        print(f"{run.name:<9} {run.digest}")


def verdict(runs):
    """Prints what the table means and returns the exit status."""
    managed = runs[-1]
    held, budget = managed.value("peak_held_bytes"), managed.value("budget_bytes")
    same = len({run.digest for run in runs}) == 1
    within = budget is not None and held <= budget
    print("results: " + ("bit-identical" if same else "DIFFERENT"))
    print("budget:  " + ("kept" if within else f"NOT KEPT ({held} bytes held, {budget} allowed)"))
    return 0 if same and within else 1


def main():
    arguments = parse_arguments()
    if not arguments.ebbtide:
        stop(
            "no ebbtide command given",
            "start tools/quickstart, which builds it and calls this file",
        )
    runs = train_all(arguments)
    print_table(runs)
    return verdict(runs)


if __name__ == "__main__":
    sys.exit(main())
