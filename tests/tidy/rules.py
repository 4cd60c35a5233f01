# SPDX-License-Identifier: Apache-2.0
"""The style rules of this project, each a function from a file to its violations.

A rule takes (path, text), the path relative to the source tree, and yields (line, message). RULES
lists them all; a rule that needs to look at other files as well takes the whole tree and stands in
TREE_RULES. The words that some rules forbid are written in pieces here, so that a plain search for
them finds only offenders.
"""

import ast
import posixpath
import re

from tidy import cpp_source

LINE_COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 800
HEADER_PROSE_LINES_MIN = 3

# A folder may include only from itself and from those before it.
LAYERS = [
    "base",
    "allocator",
    "tracker",
    "policy",
    "rematerializer",
    "partitioner",
    "runtime",
    "pytorch",
    "tools",
]

CPP = (".cc", ".h", ".c", ".cu")
SOURCES = CPP + (".py", ".sh", ".bzl")


def is_source(path):
    """Code of ours, by name or, for scripts without an ending, by place."""
    name = posixpath.basename(path)
    scripts = ("tools/test", "tools/quickstart", "tools/gpu-check", ".ci/run")
    return path.endswith(SOURCES) or name == "BUILD" or name.endswith(".BUILD") or path in scripts


def is_test(path):
    return path.startswith("tests/")


def is_library(path):
    """C++ that may end up inside somebody else's process."""
    return path.endswith(CPP) and path.split("/")[0] in LAYERS[:-1]


def file_length(path, text):
    limit = TEST_FILE_LINES_MAX if is_test(path) else FILE_LINES_MAX
    count = text.count("\n")
    if is_source(path) and count > limit:
        yield limit + 1, f"{count} lines, at most {limit}: split the file by concern"


def line_width(path, text):
    if not is_source(path):
        return
    for number, line in enumerate(text.split("\n"), 1):
        # A web address cannot be broken.
        if len(line) > LINE_COLUMNS_MAX and "://" not in line:
            yield number, f"{len(line)} columns, at most {LINE_COLUMNS_MAX}"


def _python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def function_length(path, text):
    if path.endswith(CPP):
        found = cpp_source.functions(text)
    elif path.endswith(".py"):
        found = _python_functions(text)
    else:
        return
    for line, count in found:
        if count > FUNCTION_LINES_MAX:
            yield line, f"a function of {count} lines, at most {FUNCTION_LINES_MAX}: split it"


def licence_line(path, text):
    first = text.split("\n")[:2]
    wanted = "SPDX-License-Identifier: Apache-2.0"
    if is_source(path) and not any(wanted in line for line in first if not line.startswith("#!")):
        yield 1, f"the first line (the second after #!) must say {wanted}"


def header_prose(path, text):
    if not path.endswith(".h"):
        return
    guard = "EBBTIDE_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
    if f"#ifndef {guard}\n#define {guard}\n" not in text:
        yield 1, f"the include guard must be {guard}"
    before = text.split("#ifndef", 1)[0].split("\n")
    prose = [line for line in before if re.match(r"//.*\w", line) and "SPDX" not in line]
    if len(prose) < HEADER_PROSE_LINES_MIN:
        yield 1, "before the guard: what this is, its threads, its ownership, how to replace it"


def _word(name):
    # Not a member, not part of a longer name, and not a function of another namespace.
    return r"(?<![\w.:>])(?:std::|::)?" + name


# (pattern, what to do instead, where). The pattern sees code without comments and literals.
FORBIDDEN = [
    (_word(r"v?pr" r"intf\s*\("), "log by base/log.h: stdout belongs to the program", is_library),
    (_word(r"puts\s*\("), "log by base/log.h: stdout belongs to the program", is_library),
    (
        r"std::c" r"(out|err|log)\b",
        "log by base/log.h: streams start late and end early",
        is_library,
    ),
    (r"std::" r"endl\b", "write '\\n': a flush is a decision of its own", None),
    (_word(r"ass" r"ert\s*\("), "use EBB_CHECK or EBB_DCHECK of base/check.h", None),
    (r"#\s*include\s*<c?ass" r"ert", "use EBB_CHECK or EBB_DCHECK of base/check.h", None),
    (_word(r"sys" r"tem\s*\("), "start a program with execv or posix_spawn, without a shell", None),
    (_word(r"po" r"pen\s*\("), "start a program with execv or posix_spawn, without a shell", None),
    (
        r"\.det" r"ach\s*\(\s*\)",
        "own the thread and join it",
        lambda path: not path.startswith("pytorch/"),
    ),
    (
        _word(r"v?spr" r"intf\s*\("),
        "use absl::StrFormat, or snprintf where nothing may allocate",
        None,
    ),
    (_word(r"str(cpy|cat|tok)\s*\("), "use std::string, absl::StrCat or absl::StrSplit", None),
    (_word(r"s?rand\s*\("), "draw from a generator with a seed that can be repeated", None),
    (
        r"absl::" r"(Mutex|CondVar|ReaderMutexLock)\b",
        "use base/mutex.h, which says why",
        None,
    ),
    (r"std::random_device", "draw from a generator with a seed that can be repeated", None),
    (r"\busing\s+namespace\s+std\b", "name what is used", None),
    (r"#\s*pragma\s+once", "use an include guard", None),
    (_word(r"(quick_)?exit\s*\("), "return a Status: ending is the program's decision", is_library),
    (
        r"\bthrow\b",
        "return a Status: no exception crosses a layer",
        lambda path: is_library(path) and not path.startswith("pytorch/"),
    ),
    (
        r"\bNO" r"LINT\b",
        "mend what the linter found, or drop the check in .clang-tidy with the reason",
        None,
    ),
]

# One file is the place where the forbidden thing is done for everybody else.
EXEMPT = {
    "base/check.cc": "it is what replaces the others, and must be able to run anywhere",
    "base/log.cc": "it is what the others should use",
}


def forbidden_calls(path, text):
    if not path.endswith(CPP) or path in EXEMPT:
        return
    code = cpp_source.blank_literals(text)
    for pattern, instead, where in FORBIDDEN:
        if where and not where(path):
            continue
        for match in re.finditer(pattern, code):
            yield code.count(
                "\n", 0, match.start()
            ) + 1, f"{match.group(0).strip()} is banned: {instead}"


def layer_order(path, text):
    folder = path.split("/")[0]
    if not path.endswith(CPP):
        return
    for match in re.finditer(r'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text):
        line = text.count("\n", 0, match.start()) + 1
        included = match.group(1)
        target = included.split("/")[0]
        if "/" not in included or ".." in included:
            yield line, f'"{included}": include from the root of the tree'
        elif folder in LAYERS and target in ("tests", "bench", "examples"):
            yield line, f"{folder}/ must not use {target}/"
        elif folder in LAYERS and target in LAYERS and LAYERS.index(target) > LAYERS.index(folder):
            yield line, f"{folder}/ must not use {target}/, a layer above it"


LEFTOVERS = re.compile(
    r"\b(TO"
    r"DO|FIX"
    r"ME|X"
    r"XX|HA"
    r"CK)\b|(?m:^(<{7}|>{7}|={7})( |$))|(?i:not impl"
    r"emented)"
)


def leftovers(path, text):
    del path
    for match in LEFTOVERS.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, f"{match.group(0).strip()}: finish it, or leave it out"


MACHINE_PATHS = re.compile(r"(?<![\w.])/(wo" r"rk|ro" r"ot|far" r"m|ho" r"me/\w+)(?=/|\b)")


def machine_paths(path, text):
    del path
    for match in MACHINE_PATHS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, f"{match.group(0)}: a path of one machine"


def whitespace(path, text):
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "the last line has no end"
    if text.endswith("\n\n"):
        yield text.count("\n"), "empty lines at the end"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        if "\t" in line and is_source(path):
            yield number, "a tab"


RULES = [
    file_length,
    line_width,
    function_length,
    licence_line,
    header_prose,
    forbidden_calls,
    layer_order,
    leftovers,
    machine_paths,
    whitespace,
]


def unbuilt_sources(tree):
    """A C++ file that no BUILD file above it names is never compiled, and so never true."""
    for path in sorted(tree):
        if not path.endswith(CPP):
            continue
        folder = posixpath.dirname(path)
        while folder and folder + "/BUILD" not in tree:
            folder = posixpath.dirname(folder)
        build = tree.get(folder + "/BUILD" if folder else "BUILD", "")
        name = posixpath.relpath(path, folder or ".")
        # A list of unit names that a loop turns into targets counts too.
        named = {name, posixpath.splitext(name)[0], re.sub(r"_test\.cc$", "", name)}
        if not any(f'"{each}"' in build for each in named):
            yield path, 1, f"no target in {folder or '.'}/BUILD names it"


TREE_RULES = [unbuilt_sources]


def check(tree):
    """Every violation in `tree` (a dict from path to text), as (path, line, rule name, message)."""
    for path, text in sorted(tree.items()):
        for rule in RULES:
            for line, message in rule(path, text):
                yield path, line, rule.__name__, message
    for rule in TREE_RULES:
        for path, line, message in rule(tree):
            yield path, line, rule.__name__, message
