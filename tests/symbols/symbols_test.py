#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what a shared object exports and needs with its golden file.

usage: symbols_test.py [--update] OBJECT GOLDEN

Every process that is preloaded gets these names and loads these libraries: one name too many may
take over a function of the program, one library too many may keep it from starting. --update
writes the golden file instead; look at the difference before you commit it.
"""

import difflib
import pathlib
import re
import subprocess
import sys


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Inline functions of the standard library that the compiler chose not to inline. No version script
# hides them, because libstdc++ has them with a version; any copy is as good as another.
STANDARD_INLINE = re.compile(r"[WVu] _Z(NK?|T[VTIS]N?|GV)?St")


def exported(shared_object):
    """Defined dynamic symbols with their version, demangling left to the reader."""
    found = run("nm", "-D", "--defined-only", "--extern-only", "--with-symbol-versions",
                shared_object)  # fmt: skip
    # The address changes with every build; the type letter and the name do not.
    names = {" ".join(line.split()[-2:]) for line in found.splitlines()}
    return sorted(name for name in names if not STANDARD_INLINE.match(name))


def needed(shared_object):
    """NEEDED entries, and a RUNPATH where there should be none."""
    text = run("readelf", "-d", shared_object)
    found = re.findall(r"\((NEEDED|RUNPATH|RPATH)\)[^\[]*\[([^\]]*)\]", text)
    return sorted(f"{kind} {value}" for kind, value in found)


def describe(shared_object):
    lines = ["# exported", *exported(shared_object), "# needed", *needed(shared_object)]
    return "\n".join(lines) + "\n"


def misplaced_thread_locals(relocations):
    """Relocations for the place of a thread_local that name none. Gold links file-local ones of the
    initial-exec model like this: two variables then share a place."""
    places = [line.split() for line in relocations.splitlines() if "R_X86_64_TPOFF64" in line]
    # Without a symbol, the addend alone is the place; <null> is a symbol without a name.
    return [" ".join(fields) for fields in places if "<null>" in fields]


def main(arguments):
    update = arguments[:1] == ["--update"]
    shared_object, golden = arguments[1:] if update else arguments
    actual = describe(shared_object)
    relocations = run("readelf", "--wide", "--relocs", shared_object)
    if misplaced := misplaced_thread_locals(relocations):
        print("thread_locals without a place of their own:", *misplaced, sep="\n")
        return 1
    if update:
        pathlib.Path(golden).write_text(actual, encoding="utf-8")
        return 0
    expected = pathlib.Path(golden).read_text(encoding="utf-8")
    if actual == expected:
        return 0
    name = pathlib.Path(golden).name
    sys.stdout.writelines(
        line + "\n"
        for line in difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), f"golden {name}", "built", lineterm=""
        )
    )
    print(f"If this is meant: tests/symbols/symbols_test.py --update OBJECT tests/symbols/{name}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
