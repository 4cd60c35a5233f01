# SPDX-License-Identifier: Apache-2.0
"""Targets that exist once for each minor version of torch.

`torch_cc_library(name = "x", torch = "2_15", ...)` makes `:x_2_15`. Where that torch is not
installed, the target is absent from `//...`: it is tagged manual, and building it by name fails at
the first torch header.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@torch_2_11//:defs.bzl", HAS_TORCH_2_11 = "HAS_TORCH")
load("@torch_2_15//:defs.bzl", HAS_TORCH_2_15 = "HAS_TORCH")

TORCH_VERSIONS = ["2_11", "2_15"]

HAS_TORCH = {
    "2_11": HAS_TORCH_2_11,
    "2_15": HAS_TORCH_2_15,
}

# torch's headers change the layout of some of its structs without NDEBUG, which its own binaries
# are built with.
TORCH_COPTS = [
    "-DNDEBUG",
    "-fPIC",
]

def torch_cc_library(name, torch, torch_deps = [], deps = [], copts = [], tags = [], **kwargs):
    """A cc_library for one torch version; `torch_deps` are others' labels without the version."""
    versioned = ["{}{}_{}".format("" if ":" in dep else ":", dep, torch) for dep in torch_deps]
    cc_library(
        name = "{}_{}".format(name, torch),
        copts = TORCH_COPTS + copts,
        tags = tags + ([] if HAS_TORCH[torch] else ["manual"]),
        deps = deps + versioned + ["@torch_{}//:torch".format(torch)],
        **kwargs
    )
