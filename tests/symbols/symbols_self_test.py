#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that symbols_test.py passes on the right golden file and fails on each kind of difference.

usage: symbols_self_test.py OBJECT   (the probe of this folder)
"""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import symbols_test  # noqa: E402


class SymbolsTest(unittest.TestCase):
    shared_object = ""

    def run_on(self, golden):
        """Returns (exit status, what it printed) for a golden file with this text."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "probe.golden")
            path.write_text(golden, encoding="utf-8")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = symbols_test.main([self.shared_object, str(path)])
            return status, printed.getvalue()

    def test_only_what_is_meant_is_exported(self):
        names = symbols_test.exported(self.shared_object)
        self.assertIn("T symbols_probe_shown", names)
        self.assertFalse([name for name in names if "Hidden" in name or "hidden" in name])

    def test_same_passes(self):
        self.assertEqual(self.run_on(symbols_test.describe(self.shared_object)), (0, ""))

    def test_symbol_too_many_fails_and_is_named(self):
        golden = symbols_test.describe(self.shared_object)
        status, printed = self.run_on(golden.replace("T symbols_probe_shown\n", ""))
        self.assertEqual(status, 1)
        self.assertIn("+T symbols_probe_shown", printed)

    def test_lost_symbol_fails_and_is_named(self):
        golden = symbols_test.describe(self.shared_object)
        status, printed = self.run_on(golden.replace("# needed", "T lost\n# needed"))
        self.assertEqual(status, 1)
        self.assertIn("-T lost", printed)

    def test_library_too_many_fails_and_is_named(self):
        golden = symbols_test.describe(self.shared_object)
        library = symbols_test.needed(self.shared_object)[0]
        status, printed = self.run_on(golden.replace(library + "\n", ""))
        self.assertEqual(status, 1)
        self.assertIn("+" + library, printed)

    def test_a_thread_local_without_a_place_is_found(self):
        fields = "0000000000164258  0000000300000012 R_X86_64_TPOFF64  0000000000000000"
        found = symbols_test.misplaced_thread_locals(
            f"{fields} <null> + 0\n{fields} _ZN7ebbtide5depthE + 0\n{fields} e0\n"
        )
        self.assertEqual(len(found), 1)
        self.assertIn("<null>", found[0])

    def test_update_writes_what_then_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            golden = str(pathlib.Path(folder, "probe.golden"))
            self.assertEqual(symbols_test.main(["--update", self.shared_object, golden]), 0)
            self.assertEqual(symbols_test.main([self.shared_object, golden]), 0)


if __name__ == "__main__":
    SymbolsTest.shared_object = sys.argv.pop(1)
    unittest.main()
