# SPDX-License-Identifier: Apache-2.0
"""A PyTorch installation as a repository.

`torch_repository` asks an interpreter where its torch lies and gives `//:torch` (headers and
libraries) and `defs.bzl` with HAS_TORCH, TORCH_VERSION and TORCH_REASON. Where there is no such
torch, the target is empty, HAS_TORCH is False and TORCH_REASON says why: everything else still
builds. The interpreter is the one named by the environment variable `python_env`, else the
environment that tools/test makes.

After an installation has changed at the same place, `bazel sync --configure` looks again.
"""

# Reads torch's version without importing it: an import takes seconds and may fail for reasons that
# do not matter here.
_ASK = """
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
if spec is None or not spec.origin:
    sys.exit("it has no torch")
root = os.path.dirname(spec.origin)
text = open(os.path.join(root, "version.py")).read()
print(root)
print(re.search(r"__version__\\s*=\\s*['\\"]([^'\\"]+)", text).group(1))
"""

_DEFS = """HAS_TORCH = {has}
TORCH_VERSION = "{version}"
TORCH_REASON = {reason}
"""

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "torch",
    hdrs = {hdrs},
    includes = {includes},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

_LIBRARIES = ["torch", "torch_cpu", "c10", "torch_python"]

def _default_python(ctx):
    cache = ctx.os.environ.get("XDG_CACHE_HOME") or ctx.os.environ.get("HOME", "") + "/.cache"
    return "{}/ebbtide/torch-{}.0/bin/python".format(cache, ctx.attr.torch_version)

def _find_torch(ctx):
    """Returns (root folder, version, "") or (None, "", reason)."""
    python = ctx.os.environ.get(ctx.attr.python_env) or _default_python(ctx)
    if not ctx.path(python).exists:
        hint = "no interpreter at {} (set {}, or run tools/test once)"
        return None, "", hint.format(python, ctx.attr.python_env)
    answer = ctx.execute([python, "-c", _ASK])
    if answer.return_code != 0:
        return None, "", "{}: {}".format(python, answer.stderr.strip()[-300:])
    root, version = answer.stdout.strip().split("\n")
    if not version.startswith(ctx.attr.torch_version + "."):
        return None, "", "{} has torch {}, not {}".format(python, version, ctx.attr.torch_version)
    return root, version, ""

def _torch_repository_impl(ctx):
    root, version, reason = _find_torch(ctx)
    found = root != None
    ctx.file("defs.bzl", _DEFS.format(has = found, version = version, reason = repr(reason)))
    if not found:
        ctx.file("BUILD", _BUILD.format(hdrs = [], includes = [], linkopts = []))
        return
    ctx.symlink(root + "/include", "include")

    # By -L rather than as inputs, so that the objects we ship get no RUNPATH into a build folder:
    # the program's own torch is loaded before they are.
    ctx.file("BUILD", _BUILD.format(
        hdrs = "glob([\"include/**/*.h\", \"include/**/*.hpp\"])",
        includes = ["include", "include/torch/csrc/api/include"],
        linkopts = ["-L" + root + "/lib", "-Wl,--push-state,--as-needed"] +
                   ["-l" + name for name in _LIBRARIES] + ["-Wl,--pop-state"],
    ))

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    local = True,
    configure = True,
    environ = ["HOME", "TORCH_2_11_PYTHON", "TORCH_2_15_PYTHON", "XDG_CACHE_HOME"],
    attrs = {
        "python_env": attr.string(mandatory = True, doc = "Variable that names the interpreter."),
        "torch_version": attr.string(mandatory = True, doc = "Major and minor version, `2.15`."),
    },
)
