#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tools/quickstart.py with stand-ins for the interpreter and the ebbtide command.

The stand-in interpreter writes a result as the training program would; the stand-in command writes
statistics and starts the interpreter. Each test breaks one thing and looks at the exit status.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PYTHON = """#!{python}
import json, os, sys
if os.environ.get("STAND_IN_EXIT"):
    sys.exit(int(os.environ["STAND_IN_EXIT"]))
digest = os.environ.get("STAND_IN_DIGEST", "aa")
path = sys.argv[sys.argv.index("--result") + 1]
json.dump({{"digest": digest, "losses": [1.0], "seconds_per_step": 0.5}}, open(path, "w"))
"""

EBBTIDE = """#!{python}
import json, os, sys
settings = json.load(open({settings!r}))
split = sys.argv.index("--")
options, command = sys.argv[1:split], sys.argv[split + 1:]
assert options[0] == "run"
budget = options[options.index("--budget") + 1] if "--budget" in options else None
held = settings["held"] if budget else 1000
device = {{"device": "cpu", "budget_bytes": budget and int(budget), "peak_wanted_bytes": 1000,
          "peak_held_bytes": held, "evictions": 7, "rebuilds": 5}}
if settings["managed"]:
    json.dump({{"devices": [device]}}, open(options[options.index("--stats-file") + 1], "w"))
if budget:
    os.environ.update(settings["environment"])
os.execv(command[0], command)
"""


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.settings = self.folder / "settings.json"
        self.python = self.script("python", PYTHON)
        self.ebbtide = self.script("ebbtide", EBBTIDE)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, settings=str(self.settings)))
        path.chmod(0o755)
        return str(path)

    def run_with(self, *arguments, held=400, managed=True, environment=None, **outer):
        settings = {"held": held, "managed": managed, "environment": environment or {}}
        self.settings.write_text(json.dumps(settings))
        command = [sys.executable, str(ROOT / "tools" / "quickstart.py")]
        command += ["--python", self.python, "--ebbtide", self.ebbtide, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **outer}
        )

    def test_equal_digests_within_budget_succeed(self):
        done = self.run_with()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("bit-identical", done.stdout)
        self.assertIn("--budget 500 ", done.stderr)

    def test_share_and_budget_reach_the_command(self):
        self.assertIn("--budget 450 ", self.run_with("--share", "0.45").stderr)
        self.assertIn("--budget 123 ", self.run_with("--budget", "123", held=1).stderr)

    def test_another_digest_fails(self):
        done = self.run_with(environment={"STAND_IN_DIGEST": "bb"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("DIFFERENT", done.stdout)

    def test_more_held_than_allowed_fails(self):
        done = self.run_with(held=501)
        self.assertEqual(done.returncode, 1)
        self.assertIn("NOT KEPT (501 bytes held, 500 allowed)", done.stdout)

    def test_exactly_the_budget_held_succeeds(self):
        self.assertEqual(self.run_with(held=500).returncode, 0)

    def test_a_failed_run_stops_with_its_status(self):
        done = self.run_with(STAND_IN_EXIT="3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the plain run ended with 3", done.stderr)

    def test_an_unmanaged_run_stops_and_points_to_doctor(self):
        done = self.run_with(managed=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("doctor", done.stderr)

    def test_a_share_above_one_is_refused(self):
        self.assertEqual(self.run_with("--share", "1.5").returncode, 2)


if __name__ == "__main__":
    unittest.main()
