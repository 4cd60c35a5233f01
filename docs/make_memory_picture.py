#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/memory.svg: memory over time of one training program, plain and inside a budget.

Runs examples/pytorch/train_classifier.py plain, under `ebbtide run` without a budget (which tells
the wanted peak; not drawn), and under `ebbtide run --budget`. While the first and the last run, the
kernel is asked every 50 ms for the private resident memory of the process (/proc/PID/statm,
resident minus shared pages). What a process has that only imports the same packages is subtracted,
so that the curves show what training takes: tensors, and the libraries' scratch memory, which lies
outside the budget.

Start it after tools/quickstart:

    docs/make_memory_picture.py [--model resnet50] [--batch 64] [--steps 8] [--share 0.5]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples" / "pytorch" / "train_classifier.py"
IMPORTS = """
import sys, sklearn.datasets, torch, torchvision
print("ready", flush=True)
sys.stdin.read()
"""
SAMPLE_SECONDS = 0.05
MIB = 2**20


def private_bytes(pid):
    """Resident pages that no file stands behind; None once the process has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    pages = int(words[1]) - int(words[2])
    return pages * os.sysconf("SC_PAGE_SIZE") if int(words[0]) else None


def baseline(launcher, python):
    """What a process has that has imported everything and done nothing."""
    with subprocess.Popen([*launcher, python, "-c", IMPORTS], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        if not child.stdout.readline():
            sys.exit("the packages cannot be imported; read the lines above")
        held = private_bytes(child.pid)
        child.stdin.close()
    return held


def series(command, base):
    """Runs a program to its end; [(seconds, bytes)] from the moment when it begins to work."""
    points = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        start = time.monotonic()
        while child.poll() is None:
            held = private_bytes(child.pid)
            if held is not None:
                points.append((time.monotonic() - start, max(0, held - base)))
            time.sleep(SAMPLE_SECONDS)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    highest = max(value for _, value in points)
    first = next(i for i, (_, value) in enumerate(points) if value > highest / 100)
    begin = points[first][0]
    return [(at - begin, value) for at, value in points[first:]]


def wanted_bytes(launcher, program):
    """The peak that the program wants, from an observing run."""
    with tempfile.TemporaryDirectory(prefix="ebbtide-picture-") as folder:
        stats = pathlib.Path(folder) / "stats.json"
        subprocess.run([*launcher, "--stats-file", str(stats), "--", *program], check=True,
                       stdout=subprocess.DEVNULL)
        return json.loads(stats.read_text())["devices"][0]["peak_wanted_bytes"]


def step_for(highest, most):
    """A round distance of marks: 1, 2 or 5 times a power of ten, at most `most` of them."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if highest / (step * factor) <= most:
                return step * factor
        step *= 10


class Picture:
    """Coordinates and text of the SVG; sizes in its own units."""

    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 360, 70, 20, 40, 50

    def __init__(self, seconds, mib):
        self.seconds, self.mib = seconds, mib * 1.08
        self.parts = []

    def x(self, seconds):
        return self.LEFT + seconds / self.seconds * (self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, mib):
        return self.HEIGHT - self.BOTTOM - mib / self.mib * (self.HEIGHT - self.TOP - self.BOTTOM)

    def line(self, x1, y1, x2, y2, style):
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.parts.append(f"<line {ends} {style}/>")

    def text(self, x, y, words, style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>')

    def axes(self):
        for step, highest, place in ((step_for(self.mib, 6), self.mib, self.y),
                                     (step_for(self.seconds, 8), self.seconds, self.x)):
            for i in range(int(highest / step) + 1):
                at = place(i * step)
                if place == self.y:
                    self.line(self.LEFT, at, self.WIDTH - self.RIGHT, at, 'stroke="#e4e4e4"')
                    self.text(self.LEFT - 8, at + 4, f"{i * step:g}", 'text-anchor="end"')
                else:
                    self.text(at, self.HEIGHT - self.BOTTOM + 18, f"{i * step:g}",
                              'text-anchor="middle"')
        self.text(self.LEFT - 8, self.TOP - 18, "MiB", 'text-anchor="end"')
        self.text(self.WIDTH - self.RIGHT, self.HEIGHT - 12, "seconds", 'text-anchor="end"')

    def curve(self, points, colour, words, row):
        """One curve, thinned to the highest value of each pixel."""
        highest = {}
        for seconds, value in points:
            column = round(self.x(seconds))
            highest[column] = max(highest.get(column, 0), value / MIB)
        path = " ".join(f"{column},{self.y(value):.1f}" for column, value in highest.items())
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                          'stroke-width="1.6"/>')
        self.text(self.LEFT + 190 * row, self.TOP - 18, words, f'fill="{colour}"')

    def svg(self, title):
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {self.HEIGHT}" '
                f'font-family="sans-serif" font-size="13" fill="#333">\n<title>{title}</title>\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n')


def draw(plain, managed, budget, name):
    seconds = max(plain[-1][0], managed[-1][0])
    mib = max(value for _, value in plain + managed) / MIB
    picture = Picture(seconds, max(mib, budget / MIB))
    picture.axes()
    at = picture.y(budget / MIB)
    picture.line(picture.LEFT, at, picture.WIDTH - picture.RIGHT, at,
                 'stroke="#1a7f37" stroke-width="1.4" stroke-dasharray="7 4"')
    picture.text(picture.LEFT + 380, picture.TOP - 18, f"budget {budget / MIB:.0f} MiB",
                 'fill="#1a7f37"')
    picture.curve(plain, "#b35900", "plain", 0)
    picture.curve(managed, "#0b5cad", "inside the budget", 1)
    return picture.svg(f"Memory of {name} over time, plain and inside a budget")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.5, help="of the wanted peak (0.5)")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--ebbtide", default=str(ROOT / ".venv/bin/ebbtide"))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/memory.svg")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    program = [arguments.python, str(PROGRAM), "--model", arguments.model,
               "--batch", str(arguments.batch), "--steps", str(arguments.steps)]
    launcher = [arguments.ebbtide, "run"]
    budget = int(wanted_bytes(launcher, program) * arguments.share)
    plain = series(program, baseline([], arguments.python))
    launcher += ["--budget", str(budget)]
    managed = series([*launcher, "--", *program], baseline([*launcher, "--"], arguments.python))
    name = f"{arguments.model}, batch {arguments.batch}"
    arguments.output.write_text(draw(plain, managed, budget, name), encoding="utf-8")
    tops = [max(value for _, value in points) / MIB for points in (plain, managed)]
    print(f"{arguments.output}: budget {budget / MIB:.0f} MiB, highest above the imports: "
          f"plain {tops[0]:.0f} MiB, managed {tops[1]:.0f} MiB")


if __name__ == "__main__":
    main()
