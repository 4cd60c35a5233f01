#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up small result files with tools/test_summary.py and compares the counts."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

GTEST = """<testsuites name="AllTests"><testsuite name="A">
<testcase name="Good" status="run" result="completed" classname="A"/>
<testcase name="Bad" status="run" result="completed" classname="A"><failure message="x"/></testcase>
<testcase name="Left" status="notrun" result="suppressed" classname="A"/>
<testcase name="Skip" status="run" result="skipped" classname="A"><skipped/></testcase>
</testsuite></testsuites>"""

PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_x" name="test_good"/>
<testcase classname="tests.test_x" name="test_error"><error message="x"/></testcase>
</testsuite></testsuites>"""


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def add_bazel(self, *results):
        """Each result is (label, status, text of test.xml or None)."""
        lines = []
        for label, status, xml in results:
            output = []
            if xml is not None:
                name = self.path / (label.strip("/").replace(":", "_") + ".xml")
                name.write_text(xml)
                output = [{"name": "test.xml", "uri": name.as_uri()}]
            result = {"status": status, "testActionOutput": output}
            lines.append(json.dumps({"id": {"testResult": {"label": label}}, "testResult": result}))
        lines.append(json.dumps({"id": {"progress": {}}, "progress": {}}))
        (self.path / "all.bazel.json").write_text("\n".join(lines) + "\n")

    def summary(self):
        """Returns (exit status, lines)."""
        command = [sys.executable, ROOT / "tools" / "test_summary.py", self.path]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_a_gtest_binary_counts_by_its_cases(self):
        self.add_bazel(("//a:a", "FAILED", GTEST))
        status, lines = self.summary()
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed")
        self.assertIn("FAILED bazel all: //a:a A.Bad", lines)
        self.assertIn("bazel all: 1 passed, 1 failed, 1 skipped", lines)

    def test_a_crash_without_a_result_file_is_a_failure(self):
        self.add_bazel(("//a:a", "FAILED", None), ("//a:b", "TIMEOUT", "<broken"))
        status, lines = self.summary()
        self.assertEqual((status, lines[-1]), (1, "0 passed, 2 failed"))

    def test_a_crash_after_cases_that_passed_is_a_failure(self):
        passed = GTEST.replace('<failure message="x"/>', "")
        self.add_bazel(("//a:a", "FAILED", passed))
        status, lines = self.summary()
        self.assertEqual((status, lines[-1]), (1, "2 passed, 1 failed"))

    def test_a_script_without_a_result_file_counts_as_one(self):
        self.add_bazel(("//a:a", "PASSED", None))
        self.assertEqual(
            self.summary(), (0, ["bazel all: 1 passed, 0 failed", "1 passed, 0 failed"])
        )

    def test_a_filter_that_left_no_case_counts_nothing_and_is_no_success(self):
        self.add_bazel(("//a:a", "PASSED", '<testsuites name="AllTests"></testsuites>'))
        status, lines = self.summary()
        self.assertEqual((status, lines[-1]), (1, "0 passed, 0 failed"))

    def test_pytest_files_add_up_with_bazel(self):
        self.add_bazel(("//a:a", "PASSED", None))
        (self.path / "torch-2.15.junit.xml").write_text(PYTEST)
        status, lines = self.summary()
        self.assertEqual((status, lines[-1]), (1, "2 passed, 1 failed"))
        self.assertIn("FAILED torch-2.15: tests.test_x.test_error", lines)


if __name__ == "__main__":
    unittest.main()
