# SPDX-License-Identifier: Apache-2.0
"""`cuda_library`: like cc_library, and compiles its `.cu` sources with nvcc.

To be called only where HAS_CUDA of @cuda_toolkit//:defs.bzl is true.
"""

load("@cuda_toolkit//:defs.bzl", "CUDA_CODE", "NVCC")
load("@rules_cc//cc:defs.bzl", "cc_library")

# What nvcc hands to the host compiler: the object may end up in a shared library, and exports
# nothing there. -Wextra is left out: CUDA's headers do not pass it.
_HOST_OPTIONS = "-fPIC,-fvisibility=hidden,-Wall"

def _cuda_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    host_compiler = ctx.attr._cc[platform_common.TemplateVariableInfo].variables["CC"]
    outputs = []
    for source in ctx.files.srcs:
        output = ctx.actions.declare_file(source.basename[:-len(".cu")] + ".cu.o")
        outputs.append(output)
        arguments = ctx.actions.args()
        arguments.add_all(["-std=c++20", "-O3", "-ccbin", host_compiler])
        arguments.add_all(CUDA_CODE)
        arguments.add_all(["-Xcompiler", _HOST_OPTIONS, "-I."])
        for context in contexts:
            arguments.add_all(context.defines, format_each = "-D%s")
            arguments.add_all(context.quote_includes, before_each = "-I")
            arguments.add_all(context.includes, before_each = "-I")
            arguments.add_all(context.system_includes, before_each = "-isystem")
        arguments.add_all(["-c", source, "-o", output])
        ctx.actions.run(
            executable = NVCC,
            arguments = [arguments],
            inputs = depset(
                [source] + ctx.files.hdrs,
                transitive = [context.headers for context in contexts],
            ),
            outputs = [output],
            # nvcc starts its own parts by path, and the host compiler's by name.
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling {} with nvcc".format(source.short_path),
        )
    return [DefaultInfo(files = depset(outputs))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_cc": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library whose `srcs` may also be `.cu`.

    Args:
      name: of the cc_library.
      srcs: `.cu` for nvcc; `.cc` and private `.h` as in cc_library.
      hdrs: as in cc_library.
      deps: as in cc_library.
      **kwargs: for the cc_library.
    """
    device = [source for source in srcs if source.endswith(".cu")]
    host = [source for source in srcs if not source.endswith(".cu")]
    _cuda_objects(
        name = name + "_objects",
        srcs = device,
        hdrs = hdrs + [source for source in host if source.endswith(".h")],
        deps = deps,
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = host + [":" + name + "_objects"],
        hdrs = hdrs,
        deps = deps + ["@cuda_toolkit//:cudart"],
        **kwargs
    )
