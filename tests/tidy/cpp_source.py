# SPDX-License-Identifier: Apache-2.0
"""Just enough understanding of C++ for the style rules: code without comments and literals, and
where functions lie."""

import re

_LITERALS = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"
    | "(?:\\.|[^"\\\n])*"
    | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
    """,
    re.DOTALL | re.VERBOSE,
)

# What may carry parentheses without being a parameter list.
_ATTRIBUTES = re.compile(
    r"\b(?:alignas|decltype|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)|\[\[.*?\]\]", re.DOTALL
)
_NOT_A_BODY = re.compile(
    r"[=(,\[]\s*$|^\s*(?:template\s*<[^{}]*>\s*)?(?:namespace|class|enum|union)\b"
)


def blank_literals(text):
    """The text with comments and literals as spaces; every line keeps its number and length."""
    return _LITERALS.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def _opens_function(head):
    """Whether a brace after `head` (the text since the last statement) begins a function's body."""
    return "(" in _ATTRIBUTES.sub("", head) and not _NOT_A_BODY.search(head)


def functions(text):
    """Yields (first line, line count) of each function, from its signature to its closing brace.

    Functions inside functions (lambdas, local classes) count with the one around them.
    """
    code = re.sub(
        r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        lambda m: re.sub(r"[^\n]", " ", m.group(0)),
        blank_literals(text),
    )
    depth_of_function, depth, start, begin = None, 0, 0, 0
    for position, character in enumerate(code):
        if character == "{":
            head = code[start:position]
            if depth_of_function is None and _opens_function(head):
                depth_of_function = depth
                begin = start + len(head) - len(head.lstrip())
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == depth_of_function:
                first = code.count("\n", 0, begin) + 1
                yield first, code.count("\n", 0, position) + 2 - first
                depth_of_function = None
        if character in "{};":
            start = position + 1
