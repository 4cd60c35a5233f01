# SPDX-License-Identifier: Apache-2.0
"""A CUDA toolkit as a repository, and the rule that compiles with it.

`cuda_repository` looks for a toolkit and gives `//:cudart` (the runtime's headers and static
library) and `defs.bzl` with HAS_CUDA, CUDA_REASON, NVCC, CUDA_VERSION and CUDA_CODE (nvcc's
-gencode options). Where there is no toolkit, HAS_CUDA is False and CUDA_REASON says why: whatever
needs it is left out, and everything else still builds.

The toolkit is the one that CUDA_HOME or CUDA_PATH names; without them that of the nvcc on PATH, or
/usr/local/cuda. So --repo_env=CUDA_HOME=/nowhere builds as if there were none. After an
installation has changed at the same place, `bazel sync --configure` looks again.
"""

# CUDA 12 is the first whose nvcc knows C++20.
_MAJOR_MIN = 12

# Machine code for these, as far as the toolkit makes it, and portable code of the last one, which
# the driver compiles for later GPUs.
_ARCHITECTURES = ["80", "90"]

_LIB_FOLDERS = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]

_DEFS = """HAS_CUDA = {has}
CUDA_REASON = {reason}
CUDA_VERSION = {version}
NVCC = {nvcc}
CUDA_CODE = {code}
"""

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

# Static: no program that contains it needs a CUDA library to start.
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    hdrs = glob(["include/*.h", "include/crt/*"]),
    includes = ["include"],
    linkopts = ["-ldl", "-lrt", "-pthread"],
    visibility = ["//visibility:public"],
)
"""

def _candidates(ctx):
    """Root folders in the order in which they count."""
    named = ctx.os.environ.get("CUDA_HOME") or ctx.os.environ.get("CUDA_PATH")
    if named:
        return [named]
    nvcc = ctx.which("nvcc")
    found = [str(nvcc.realpath.dirname.dirname)] if nvcc else []
    return found + ["/usr/local/cuda"]

def _static_runtime(ctx, root):
    for folder in _LIB_FOLDERS:
        library = ctx.path("{}/{}/libcudart_static.a".format(root, folder))
        if library.exists:
            return library
    return None

def _what_is_missing(ctx, root):
    has_cub = False
    for folder in ["include/cccl", "include"]:
        has_cub = has_cub or ctx.path("{}/{}/cub/version.cuh".format(root, folder)).exists
    if not ctx.path(root + "/bin/nvcc").exists:
        return "bin/nvcc"
    if not ctx.path(root + "/include/cuda_runtime_api.h").exists:
        return "include/cuda_runtime_api.h"
    if not has_cub:
        return "CUB's headers"
    if not _static_runtime(ctx, root):
        return "libcudart_static.a"
    return None

def _words_after(text, prefix):
    words = text.replace("\n", " ").split(" ")
    return [word[len(prefix):] for word in words if word.startswith(prefix)]

def _find(ctx):
    """Returns (root, version, architectures, "") or (None, None, [], reason)."""
    reasons = []
    for root in _candidates(ctx):
        missing = _what_is_missing(ctx, root)
        if missing:
            reasons.append("{} has no {}".format(root, missing))
            continue
        nvcc = root + "/bin/nvcc"
        # "Cuda compilation tools, release 13.0, V13.0.88"
        versions = _words_after(ctx.execute([nvcc, "--version"]).stdout, "V")
        listed = _words_after(ctx.execute([nvcc, "--list-gpu-arch"]).stdout, "compute_")
        usable = [each for each in _ARCHITECTURES if each in listed]
        if not versions or not usable:
            reasons.append(nvcc + " does not say what it is")
        elif int(versions[-1].split(".")[0]) < _MAJOR_MIN:
            reasons.append("{} is CUDA {}, too old for C++20".format(root, versions[-1]))
        else:
            return root, versions[-1], usable, ""
    return None, None, [], "; ".join(reasons)

def _cuda_repository_impl(ctx):
    root, version, architectures, reason = _find(ctx)
    code = [
        "-gencode=arch=compute_{0},code=sm_{0}".format(each)
        for each in architectures
    ] + ["-gencode=arch=compute_{0},code=compute_{0}".format(each) for each in architectures[-1:]]
    ctx.file("defs.bzl", _DEFS.format(
        has = root != None,
        reason = repr(reason),
        version = repr(version or ""),
        nvcc = repr(root + "/bin/nvcc" if root else ""),
        code = repr(code),
    ))
    if root == None:
        ctx.file("BUILD", "")
        return
    ctx.symlink(root + "/include", "include")
    ctx.symlink(_static_runtime(ctx, root), "lib/libcudart_static.a")
    ctx.file("BUILD", _BUILD)

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    local = True,
    configure = True,
    environ = ["CUDA_HOME", "CUDA_PATH", "PATH"],
)
