# SPDX-License-Identifier: Apache-2.0
"""The headers of a CUDA toolkit's driver API, for the tests that compare our own declarations with
them. Nothing that we ship includes them.

The toolkit is the one that the environment variable CUDA_HOME names, else the system's. Where there
is none, the target is empty and such a test says that it is skipped: everything still builds.
"""

_HEADERS = ["cuda.h", "cudaTypedefs.h"]

_BUILD = """load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = {hdrs},
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

def _cuda_headers_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME")
    roots = [home + "/include"] if home else ["/usr/local/cuda/include", "/usr/include"]
    found = [
        root
        for root in roots
        if not [name for name in _HEADERS if not ctx.path(root + "/" + name).exists]
    ]
    for name in _HEADERS if found else []:
        ctx.symlink(found[0] + "/" + name, "include/" + name)
    ctx.file("BUILD", _BUILD.format(hdrs = "glob([\"include/*.h\"])" if found else "[]"))

cuda_headers = repository_rule(
    implementation = _cuda_headers_impl,
    local = True,
    configure = True,
    environ = ["CUDA_HOME"],
)
