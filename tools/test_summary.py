# SPDX-License-Identifier: Apache-2.0
"""Adds up the results of one tools/test run: Bazel's build events and pytest's JUnit files in one
folder.

usage: test_summary.py FOLDER   (*.bazel.json, *.junit.xml)

A gtest binary counts by its cases. Any other Bazel test, and one that ended without a readable
result file, counts as one. Prints a line per failure and per group, and last `N passed, N failed`.
"""

import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


class Tally:
    """Passed and skipped counts and the names of what failed, of one group."""

    def __init__(self, group):
        self.group = group
        self.passed = 0
        self.skipped = 0
        self.failed = []

    def __str__(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.group}: {self.passed} passed, {len(self.failed)} failed{skipped}"


def add_cases(tally, xml_path, prefix):
    """Adds each case of a JUnit file. Returns how many it held, 0 when it cannot be read."""
    try:
        cases = list(ElementTree.parse(xml_path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return 0
    counted = 0
    for case in cases:
        # gtest also lists the cases that its filter left out.
        if case.get("status") == "notrun":
            continue
        counted += 1
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed.append(f"{prefix}{case.get('classname', '')}.{case.get('name')}")
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            tally.skipped += 1
        else:
            tally.passed += 1
    return counted


def add_bazel(tally, events_path):
    """Adds every test that Bazel reports in its build event file."""
    for line in events_path.read_text().splitlines():
        event = json.loads(line)
        label = event.get("id", {}).get("testResult", {}).get("label")
        result = event.get("testResult")
        if not label or not result:
            continue
        passed = result.get("status") in ("PASSED", "FLAKY")
        files = {file["name"]: file.get("uri", "") for file in result.get("testActionOutput", [])}
        xml_path = urllib.parse.unquote(urllib.parse.urlparse(files.get("test.xml", "")).path)
        failed_before = len(tally.failed)
        counted = add_cases(tally, xml_path, label + " ") if xml_path else 0
        # A crash or a timeout leaves no failing case behind.
        if not passed and len(tally.failed) == failed_before:
            tally.failed.append(f"{label} ({result.get('status')})")
        elif passed and counted == 0 and not is_gtest(xml_path):
            tally.passed += 1


def is_gtest(xml_path):
    """True for a result file that gtest wrote, also when its filter left no case."""
    try:
        return ElementTree.parse(xml_path).getroot().get("name") == "AllTests"
    except (OSError, ElementTree.ParseError):
        return False


def main(folder):
    tallies = []
    for path in sorted(pathlib.Path(folder).glob("*.bazel.json")):
        tallies.append(Tally(f"bazel {path.name.split('.')[0]}"))
        add_bazel(tallies[-1], path)
    for path in sorted(pathlib.Path(folder).glob("*.junit.xml")):
        tallies.append(Tally(path.name[: -len(".junit.xml")]))
        add_cases(tallies[-1], path, "")
    for tally in tallies:
        for name in tally.failed:
            print(f"FAILED {tally.group}: {name}")
    for tally in tallies:
        print(tally)
    passed = sum(tally.passed for tally in tallies)
    failed = sum(len(tally.failed) for tally in tallies)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
