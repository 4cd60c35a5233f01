#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an allocator does to a step of training on the processor.

Trains a ResNet-50 and a GPT-2-like decoder in child processes that take turns: plain PyTorch,
PyTorch under Ebbtide with a budget that nothing reaches, and PyTorch with each allocator that is
named preloaded. The ratio is the median over all rounds of the step's time to the plain step's of
the same round, by the clock on the wall, with the quartiles in brackets; "cpu" is the same by the
processor time of all threads, which other programs disturb less.

usage: .venv/bin/python bench/allocator/step_ratio.py --preload jemalloc=libjemalloc.so.2
Exit status 0 only if every side ran and Ebbtide's bits are the plain run's; 77 when this
interpreter has no torch or torchvision.
"""

import argparse
import contextlib
import importlib.util
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))

import step_bench  # noqa: E402

NETWORKS = ("resnet50", "gpt")
NOTHING_TO_MEASURE = 77


class Preloaded(step_bench.Side):
    """Plain PyTorch with another malloc."""

    def __init__(self, network, threads, allocator):
        self.allocator = allocator
        super().__init__(network, threads)

    def environment(self, threads):
        return {**super().environment(threads), "LD_PRELOAD": self.allocator}

    def check(self):
        """The dynamic linker goes on without what it cannot preload."""
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        if pathlib.Path(self.allocator).name not in maps:
            raise step_bench.SideFailed(f"{self.allocator} was not preloaded")


def measure(network, options):
    """{allocator: numbers} of one network."""
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(step_bench.Side(network, options.threads))
        sides = {}
        if options.library is not None:
            sides["ebbtide"] = stack.enter_context(
                step_bench.Side(network, options.threads, options.library,
                                step_bench.NO_PRESSURE_BYTES))  # fmt: skip
        for name, allocator in options.preload:
            sides[name] = stack.enter_context(Preloaded(network, options.threads, allocator))
        spent = step_bench.interleave([plain, *sides.values()], options.pairs)
        rows = {}
        for name, side in sides.items():
            if isinstance(spent[side], step_bench.SideFailed):
                raise step_bench.SideFailed(f"{name}: {spent[side]}")
            if isinstance(side, Preloaded):
                side.check()
            rows[name] = step_bench.compare(plain, side)
        if "ebbtide" in sides:
            rows["ebbtide"]["identical"] = plain.ask("digest") == sides["ebbtide"].ask("digest")
            sides["ebbtide"].finish()  # Fails unless it was managed.
        return statistics.median(plain.walls), rows


def print_rows(network, plain_seconds, rows):
    print(f"{network}: plain {1e3 * plain_seconds:.0f} ms a step")
    for name, row in rows.items():
        low, high = row["ratio_quartiles"]
        print(f"  {name:<12} {row['ratio']:6.3f} [{low:6.3f} {high:6.3f}]  cpu "
              f"{row['cpu_ratio']:6.3f}", flush=True)  # fmt: skip


def parse_preload(text):
    name, equals, library = text.partition("=")
    if not (name and equals and library):
        raise argparse.ArgumentTypeError(f"{text}: not NAME=LIBRARY")
    return name, library


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--preload", type=parse_preload, action="append", default=[], metavar="NAME=LIBRARY",
        help="also measure this malloc; may be repeated",
    )  # fmt: skip
    parser.add_argument("--networks", default=",".join(NETWORKS), help=f"of {','.join(NETWORKS)}")
    parser.add_argument("--pairs", type=int, help="rounds (9; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run?")
    parser.add_argument("--threads", type=int, default=1, help="threads of each side (1)")
    parser.add_argument("--library", type=pathlib.Path, help="libebbtide.so (what was built)")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="also write all numbers")
    options = parser.parse_args()
    options.networks = options.networks.split(",")
    if unknown := set(options.networks) - set(NETWORKS):
        parser.error(f"--networks {','.join(unknown)}: choose of {', '.join(NETWORKS)}")
    if options.pairs is None:
        options.pairs = 3 if options.quick else 9
    if options.pairs < 1 or options.threads < 1:
        parser.error("--pairs and --threads must be at least 1")
    if options.library is None:
        options.library = next((path for path in step_bench.LIBRARIES if path.exists()), None)
    elif not options.library.exists():
        parser.error(f"--library {options.library}: there is no such file")
    return options


def main():
    options = parse_arguments()
    for module in ("torch", "torchvision"):
        if importlib.util.find_spec(module) is None:
            print(f"{sys.executable} has no {module}", file=sys.stderr)
            return NOTHING_TO_MEASURE
    print("a training step, ratio to plain PyTorch (with the malloc of the C library): "
          f"{options.pairs} rounds, {options.threads} threads")  # fmt: skip
    if options.library is None:
        print("  ebbtide: left out, libebbtide.so is not built")
    numbers = {"step_ratio": {}, "step": {}}
    failures = []
    for network in options.networks:
        try:
            plain_seconds, rows = measure(network, options)
        except step_bench.SideFailed as failure:
            failures.append(f"{network}: {failure}")
            continue
        print_rows(network, plain_seconds, rows)
        numbers["step_ratio"][network] = {name: row["ratio"] for name, row in rows.items()}
        numbers["step"][network] = rows
        if not rows.get("ebbtide", {}).get("identical", True):
            failures.append(f"{network}: under Ebbtide the bits differ")
    if options.json is not None:
        options.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
