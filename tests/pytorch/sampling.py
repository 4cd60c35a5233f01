# SPDX-License-Identifier: Apache-2.0
"""Runs programs/samples.py plain and managed and compares sample by sample.

A crash of a child is blamed on the group (operator, module, optimizer) that ran: the rest of the
shard then goes on in another child without that group.
"""

import json
import pathlib
import shutil
import tempfile

import harness

CRASHES_AT_MOST = 12
SHOWN_AT_MOST = 25


def read_lines(path):
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
             if line.endswith("}")]
    return {line["name"]: line for line in lines}


class Shard:
    """All lines that one shard gave, and the groups in which a child died."""

    def __init__(self, database, shard, only=(), **options):
        self.only = [f"--only={group}" for group in only]
        self.lines, self.crashes, self.outcome = {}, {}, None
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ebbtide-samples-"))
        try:
            self.run(folder, database, shard, options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, folder, database, shard, options):
        out, progress = folder / "lines.jsonl", folder / "now.txt"
        args = [database, "--shard", shard, "--out", out, "--progress", progress, *self.only]
        if harness.TEST_ALL:
            args.append("--everything")
        while True:
            done = {line["group"] for line in read_lines(out).values()} | set(self.crashes)
            skipped = [f"--skip={group}" for group in sorted(done)]
            self.outcome = harness.run("samples.py", *args, *skipped, **options,
                                       timeout=10800 if harness.TEST_ALL else 900)
            self.lines = read_lines(out)
            if self.outcome.status == 0:
                return
            text = progress.read_text() if progress.exists() else ""
            if not text or len(self.crashes) >= CRASHES_AT_MOST:
                self.outcome.check()
            group, name = json.loads(text)
            self.crashes[group] = (name, self.outcome)


@harness.memoized
def plain_shard(database, shard, only):
    return Shard(database, shard, only, managed=False)


def difference(name, expected, actual):
    """A line for a sample that came out differently, or None."""
    if actual is None:
        return f"{name}: not run when managed"
    keys = ("digest", "raised")
    if all(expected.get(key) == actual.get(key) for key in keys):
        return None
    if "raised" in actual:
        return f"{name}: raised {actual['raised']}: {actual['text']}"
    return f"{name}: {'raised plain only' if 'raised' in expected else 'other bits'}"


def compare_shard(database, shard, only=(), **options):
    """The failures of a shard, as text, and how many samples were compared.

    only: the groups to run; all if there are none.
    """
    expected, actual = plain_shard(database, shard, only), Shard(database, shard, only, **options)
    failures = [f"{group}: the child died in {name!r}, exit status {outcome.status}: "
                f"{outcome.said(1500)}"
                for group, (name, outcome) in actual.crashes.items()]
    for name, line in expected.lines.items():
        if line["group"] in actual.crashes or line["group"] in expected.crashes:
            continue
        text = difference(name, line, actual.lines.get(name))
        if text:
            failures.append(text)
    ran = {line["group"] for line in expected.lines.values()}
    failures += [f"{group}: has no samples" for group in only if group not in ran]
    if expected.crashes:
        failures += [f"{group}: died without Ebbtide" for group in expected.crashes]
    return failures, len(expected.lines), actual.outcome


def check_shard(background, evicting=True):
    failures, compared, outcome = background
    assert compared > 0
    assert not failures, (
        f"{len(failures)} failures in {compared} samples:\n" + "\n".join(failures[:SHOWN_AT_MOST])
        + f"\nlast command: {outcome.command}")
    assert not evicting or outcome.device()["evictions"] > 0, outcome.describe()
