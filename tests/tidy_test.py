#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the whole source tree to the rules of tests/tidy/rules.py, and shows that each rule can
fail.

Runs under Bazel and by itself: tests/tidy_test.py
"""

import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from tidy import rules  # noqa: E402

ROOT = HERE.parent
SKIPPED_FOLDERS = {
    ".git",
    ".venv",
    ".cache",
    ".pytest_cache",
    ".hypothesis",
    "__pycache__",
    "shared",
}
# Not ours to shape, or made on one machine for itself (and ignored by git).
SKIPPED_FILES = {"LICENSE", "compile_commands.json", "user.bazelrc"}


def read_tree():
    tree = {}
    for folder, names, files in os.walk(ROOT):
        names[:] = [
            name for name in names if name not in SKIPPED_FOLDERS and not name.startswith("bazel-")
        ]
        for name in files:
            path = pathlib.Path(folder, name)
            relative = path.relative_to(ROOT).as_posix()
            if relative in SKIPPED_FILES or path.is_symlink():
                continue
            try:
                tree[relative] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # A picture.
    return tree


class TreeTest(unittest.TestCase):
    def test_every_file_keeps_every_rule(self):
        tree = read_tree()
        self.assertIn("tests/tidy_test.py", tree)
        found = [
            f"{path}:{line}: {message} [{rule}]" for path, line, rule, message in rules.check(tree)
        ]
        if found:
            self.fail("\n" + "\n".join(found))


SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = (
    SPDX + "// What it is.\n// Its threads.\n// Who owns what.\n\n"
    "#ifndef EBBTIDE_BASE_A_H_\n#define EBBTIDE_BASE_A_H_\n\n#endif  // EBBTIDE_BASE_A_H_\n"
)
BUILD = '# SPDX-License-Identifier: Apache-2.0\ncc_library(srcs = ["a.cc"], hdrs = ["a.h"])\n'


def cc(code, path="base/a.cc"):
    return {
        path: SPDX + code,
        "base/BUILD": BUILD,
        "runtime/BUILD": BUILD,
        "pytorch/BUILD": BUILD,
        "tests/base/BUILD": BUILD,
    }


def function(lines, first="int F(int x) {"):
    return first + "\n" + "  ++x;\n" * (lines - 2) + "}\n"


# (rule, a tree that breaks it, once)
BROKEN = [
    ("file_length", cc("// x\n" * 500)),
    ("file_length", cc("// x\n" * 800, "tests/base/a.cc")),
    ("line_width", cc("// " + "x" * 98 + "\n")),
    ("line_width", {"tools/a.py": SPDX.replace("//", "#") + "# " + "x" * 99 + "\n"}),
    ("function_length", cc(function(71))),
    (
        "function_length",
        cc("namespace a {\nclass B {\n" + function(71, "void F() const override {") + "};\n}\n"),
    ),
    ("function_length", cc("template <typename T>\n" + function(70))),
    ("function_length", cc("TEST(A, B) {\n" + "  // }\n" * 69 + "}\n")),
    ("function_length", cc("struct stat " + function(71))),
    ("function_length", cc("A::A(int x)\n    : y_(x) {\n" + "  ++x;\n" * 68 + "}\n")),
    ("function_length", {"tools/a.py": SPDX.replace("//", "#") + "def f():\n" + "    f()\n" * 70}),
    ("licence_line", {**cc(""), "base/a.cc": "int x;\n"}),
    ("licence_line", {"tests/a.sh": "#!/bin/sh\ntrue\n"}),
    ("header_prose", {**cc(""), "base/a.h": HEADER.replace("_A_H_", "_B_H_")}),
    ("header_prose", {**cc(""), "base/a.h": HEADER.replace("// Its threads.\n", "")}),
    ("forbidden_calls", cc("void F() { std::pr" 'intf("x"); }\n')),
    ("forbidden_calls", cc("void F() { std::c" "out << 1; }\n")),
    ("forbidden_calls", cc("void F() { s << std::" "endl; }\n", "tests/base/a.cc")),
    ("forbidden_calls", cc("void F() { ass" "ert(true); }\n")),
    ("forbidden_calls", cc("#include <cass" "ert>\n")),
    ("forbidden_calls", cc("void F() { sys" 'tem("x"); }\n')),
    ("forbidden_calls", cc("void F() { po" 'pen("x", "r"); }\n')),
    ("forbidden_calls", cc("void F() { t.det" "ach(); }\n")),
    ("forbidden_calls", cc("void F() { spr" 'intf(b, "x"); }\n')),
    ("forbidden_calls", cc("void F() { str" "cpy(a, b); }\n")),
    ("forbidden_calls", cc("int F() { return ra" "nd(); }\n")),
    ("forbidden_calls", cc("std::random" "_device d;\n")),
    ("forbidden_calls", cc("absl::" "Mutex m;\n")),
    ("forbidden_calls", cc("using name" "space std;\n")),
    ("forbidden_calls", cc("#pragma " "once\n")),
    ("forbidden_calls", cc("void F() { put" "s(text); }\n")),
    ("forbidden_calls", cc("void F() { std::ex" "it(1); }\n")),
    ("forbidden_calls", cc("void F() { thr" "ow 1; }\n")),
    ("forbidden_calls", cc("int x = NO" "LINT;\n")),
    ("layer_order", cc('#include "runtime/a.h"\n')),
    ("layer_order", cc('#include "tests/base/a.h"\n', "runtime/a.cc")),
    ("layer_order", cc('#include "a.h"\n')),
    ("layer_order", cc('#include "base/../runtime/a.h"\n')),
    ("leftovers", {"docs/a.md": "TO" "DO: more\n"}),
    ("leftovers", cc("// FIX" "ME\n")),
    ("leftovers", cc('const char* kText = "not imple' 'mented";\n')),
    ("leftovers", {"docs/a.md": "<" * 7 + " ours\n"}),
    ("machine_paths", {"docs/a.md": "see /wo" "rk/x\n"}),
    ("machine_paths", {"tools/a.py": SPDX.replace("//", "#") + 'x = "/ho' 'me/somebody/x"\n'}),
    ("whitespace", cc("int x; \n")),
    ("whitespace", cc("\tint x;\n")),
    ("whitespace", cc("int x;")),
    ("whitespace", cc("int x;\n\n")),
    ("unbuilt_sources", {**cc(""), "base/b.cc": SPDX}),
]

# Trees that look like offenders and are none.
GOOD = [
    cc(function(70)),
    cc(function(40) + function(40)),
    cc("namespace a {\n" + function(30) * 3 + "}  // namespace a\n"),
    cc("struct A {\n" + "  int x;\n" * 100 + "};\n"),
    cc("const int kTable[] = {\n" + "    1,\n" * 100 + "};\n"),
    cc("struct alignas(64) A {\n" + "  int x;\n" * 100 + "};\n"),
    cc("const auto* const kRows = new Rows({\n" + "  1,\n" * 100 + "});\n"),
    cc("enum class A {\n" + "  kX,\n" * 100 + "};\n"),
    cc("// ass" "ert(x), sys" 'tem(y)\nconst char* kText = "std::c' 'out";\n'),
    cc("void F() { static_ass" "ert(true); snpr" "intf(b, n, f); context.sys" "tem(); }\n"),
    cc("void F() { thr" "ow 1; }\n", "pytorch/a.cc"),
    cc('#include "base/a.h"\n#include <vector>\n', "runtime/a.cc"),
    cc('#include "absl/status/status.h"\n'),
    cc("// https://example.org/" + "x" * 100 + "\n"),
    {**cc(""), "base/a.h": HEADER},
    {"docs/a.md": "a/work/b, the works, ./root/x\n"},
    {"tests/a.sh": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"},
]


class RuleTest(unittest.TestCase):
    def test_each_rule_finds_its_offender_and_nothing_else(self):
        for rule, tree in BROKEN:
            with self.subTest(rule=rule, tree={path: text[:200] for path, text in tree.items()}):
                self.assertEqual([name for _, _, name, _ in rules.check(tree)], [rule])

    def test_every_rule_has_an_offender(self):
        known = {rule.__name__ for rule in rules.RULES + rules.TREE_RULES}
        self.assertEqual({rule for rule, _ in BROKEN}, known)

    def test_every_forbidden_pattern_has_an_offender(self):
        texts = [text for _, tree in BROKEN for text in tree.values()]
        for pattern, _, _ in rules.FORBIDDEN:
            self.assertTrue(any(rules.re.search(pattern, text) for text in texts), pattern)

    def test_what_only_looks_wrong_passes(self):
        for tree in GOOD:
            with self.subTest(tree={path: text[:200] for path, text in tree.items()}):
                self.assertEqual(list(rules.check(tree)), [])

    def test_a_forbidden_call_names_its_place_and_its_replacement(self):
        tree = cc("\n\nvoid F() { ass" "ert(true); }\n")
        ((path, line, _, message),) = rules.check(tree)
        self.assertEqual((path, line), ("base/a.cc", 4))
        self.assertIn("EBB_CHECK", message)


if __name__ == "__main__":
    unittest.main()
