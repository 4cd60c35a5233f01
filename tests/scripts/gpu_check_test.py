#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tools/gpu-check with a stand-in driver, and a stand-in compiler whose programs write results
as GoogleTest and Google Benchmark do."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

DRIVER = """
int cuInit(unsigned flags) { (void)flags; return %(init)s; }
int cuDeviceGetCount(int* count) { *count = %(count)s; return 0; }
"""

# Copies the program below to wherever -o points.
COMPILER = """#!{python}
import os, shutil, sys
if os.environ.get("STAND_IN_BROKEN"):
    sys.exit(1)
output = sys.argv[sys.argv.index("-o") + 1]
shutil.copy({program!r}, output)
"""

PROGRAM = """#!{python}
import json, os, sys
flags = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
if "gtest_output" in flags:
    if os.environ.get("STAND_IN_CRASH"):
        sys.exit(134)
    failures = [{{"failure": "it broke"}}] if os.environ.get("STAND_IN_FAILURE") else []
    cases = [
        {{"name": "Good", "result": "COMPLETED"}},
        {{"name": "Left", "result": "SKIPPED"}},
        {{"name": "Maybe", "result": "COMPLETED", "failures": failures}},
    ]
    path = flags["gtest_output"].split(":", 1)[1]
    json.dump({{"testsuites": [{{"name": "A", "testsuite": cases}}]}}, open(path, "w"))
else:
    rows = [
        {{"name": "Map/2/iterations:20/manual_time", "real_time": 1450.0, "time_unit": "ns"}},
        {{"name": "Map/20/iterations:20/manual_time", "real_time": 2.5, "time_unit": "us"}},
        {{"name": "RecordAndQuery", "real_time": 900.0, "time_unit": "ns"}},
    ]
    context = {{"device": "stand-in for " + os.path.basename(os.environ["EBBTIDE_CUDA_DRIVER"])}}
    json.dump({{"context": context, "benchmarks": rows}}, open(flags["benchmark_out"], "w"))
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script("program", PROGRAM)
        self.script("g++", COMPILER, program=str(self.folder / "program"))
        self.script("pkg-config", "#!/bin/sh\necho -labsl\n")
        self.report = self.folder / "report.json"

    def script(self, name, text, **values):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, **values))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def driver(self, init=0, count=1):
        source, library = self.folder / "driver.c", self.folder / "libdriver.so"
        source.write_text(DRIVER % {"init": init, "count": count})
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
        return str(library)

    def check(self, *arguments, **environment):
        """Returns (exit status, lines of stdout)."""
        path = f"{self.folder}:{os.environ['PATH']}"
        done = subprocess.run(
            [ROOT / "tools" / "gpu-check", "allocator", *arguments],
            env=dict(os.environ, PATH=path, XDG_CACHE_HOME=str(self.folder), **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        self.stderr = done.stderr
        return done.returncode, done.stdout.splitlines()

    def test_without_a_driver_it_says_so_in_one_line(self):
        status, lines = self.check("--driver", "/nowhere/libcuda.so.1")
        self.assertEqual((status, len(lines)), (3, 1))
        self.assertRegex(lines[0], "^no GPU here: .*/nowhere/libcuda.so.1")

    def test_a_driver_that_does_not_start_or_sees_nothing_is_no_gpu(self):
        status, lines = self.check("--driver", self.driver(init=100))
        self.assertEqual(status, 3)
        self.assertRegex(lines[0], "^no GPU here: .*cuInit failed with CUDA error 100")
        status, lines = self.check("--driver", self.driver(count=0))
        self.assertEqual(status, 3)
        self.assertRegex(lines[0], "^no GPU here: .*sees no device")

    def test_a_library_that_is_no_driver_is_no_gpu(self):
        status, lines = self.check("--driver", "libm.so.6")
        self.assertEqual(status, 3)
        self.assertRegex(lines[0], "^no GPU here: .*cuInit")

    def test_it_prints_a_table_and_writes_the_results(self):
        driver = self.driver()
        status, lines = self.check(
            "--driver", driver, "--build", "g++", "--json", str(self.report)
        )
        self.assertEqual(status, 0, self.stderr)
        self.assertEqual(lines[0], f"stand-in for libdriver.so, driver API ?, {driver}")
        self.assertEqual(lines[1].split(), ["us", "a", "call", "2", "MiB", "20", "MiB"])
        self.assertEqual(lines[2].split(), ["Map", "1.45", "2.50"])
        self.assertEqual(lines[3].split(), ["RecordAndQuery", "0.90"])
        self.assertEqual(lines[-1], "2 passed, 0 failed, 1 skipped")
        report = json.loads(self.report.read_text())
        self.assertEqual(report["tests"]["passed"], 2)
        self.assertEqual(
            report["benchmarks"][1], {"name": "Map", "mib": 20, "microseconds": 2.5}
        )

    def test_a_failed_test_is_named_and_fails_the_check(self):
        status, lines = self.check(
            "--driver", self.driver(), "--build", "g++", STAND_IN_FAILURE="1"
        )
        self.assertEqual(status, 1)
        self.assertIn("FAILED A.Maybe: it broke", lines)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 1 skipped")

    def test_a_crash_and_a_broken_build_fail_the_check(self):
        for name, text in [
            ("STAND_IN_CRASH", "FAILED: the tests stopped before their end, with 134"),
            ("STAND_IN_BROKEN", r"FAILED: g\+\+ -std=c\+\+20 .* ended with 1"),
        ]:
            status, lines = self.check("--driver", self.driver(), "--build", "g++", **{name: "1"})
            self.assertEqual((status, lines), (1, []))
            self.assertRegex(self.stderr, text)


if __name__ == "__main__":
    unittest.main()
