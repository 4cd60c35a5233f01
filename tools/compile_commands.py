#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes compile_commands.json for editors, clangd and clang-tidy from what Bazel would run.

usage: tools/compile_commands.py [TARGET...]   (//... unless said otherwise)
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# GCC's own; clang stops at them.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object"}


def compile_actions(targets):
    query = f'mnemonic("CppCompile", {" + ".join(targets)})'
    command = ["bazel", "aquery", query, "--output=jsonproto", "--ui_event_filters=-info,-debug"]
    answer = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return json.loads(answer.stdout).get("actions", [])


def entry_of(action, external):
    """The database entry of one action, or None for what is not ours."""
    arguments = [argument for argument in action["arguments"] if argument not in GCC_ONLY]
    source = arguments[arguments.index("-c") + 1]
    if source.startswith(("external/", "bazel-out/")):
        return None
    # Bazel runs the compiler in a folder of its own, where only external/ is not found from here.
    arguments = [re.sub("^(-[A-Z])?external/", rf"\g<1>{external}/", each) for each in arguments]
    return {"directory": str(ROOT), "file": str(ROOT / source), "arguments": arguments}


def main(targets):
    command = ["bazel", "info", "output_base"]
    base = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    entries = {}
    for action in compile_actions(targets):
        entry = entry_of(action, f"{base.strip()}/external")
        if entry:
            entries.setdefault(entry["file"], entry)
    listed = [entries[name] for name in sorted(entries)]
    (ROOT / "compile_commands.json").write_text(json.dumps(listed, indent=1) + "\n")
    print(f"{len(listed)} files", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or ["//..."]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} ended with {error.returncode}")
