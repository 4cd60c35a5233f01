# SPDX-License-Identifier: Apache-2.0
"""The libraries that Ebbtide takes from Debian, under the names they have in the Bazel Central
Registry."""

load("//third_party:system.bzl", "system_repository")

# Label shapes of upstream's Abseil. All lead to one target: the shared libraries are linked as
# needed.
_ABSL = {
    "absl/algorithm": ["algorithm", "container"],
    "absl/base": ["base", "config", "core_headers", "dynamic_annotations", "endian", "prefetch"],
    "absl/cleanup": ["cleanup"],
    "absl/container": [
        "btree",
        "fixed_array",
        "flat_hash_map",
        "flat_hash_set",
        "inlined_vector",
        "node_hash_map",
        "node_hash_set",
    ],
    "absl/functional": ["any_invocable", "bind_front", "function_ref"],
    "absl/hash": ["hash"],
    "absl/memory": ["memory"],
    "absl/meta": ["type_traits"],
    "absl/numeric": ["bits", "int128"],
    "absl/random": ["bit_gen_ref", "distributions", "random"],
    "absl/status": ["status", "statusor"],
    "absl/strings": ["cord", "str_format", "strings"],
    "absl/time": ["time"],
    "absl/types": ["optional", "span", "variant"],
    "absl/utility": ["utility"],
}

def system_packages():
    """Declares every system repository."""
    system_repository(
        name = "com_google_absl",
        apt = "libabsl-dev",
        build_file = "//third_party:packages/absl.BUILD",
        forwards = _ABSL,
        forwards_to = "//:absl",
        headers = ["absl"],
        libraries = ["libabsl_*"],
    )
    system_repository(
        name = "com_google_googletest",
        apt = "libgtest-dev libgmock-dev",
        build_file = "//third_party:packages/googletest.BUILD",
        headers = ["gtest", "gmock"],
        libraries = ["libgtest.a", "libgtest_main.a", "libgmock.a"],
    )
    system_repository(
        name = "com_github_google_benchmark",
        apt = "libbenchmark-dev",
        build_file = "//third_party:packages/benchmark.BUILD",
        headers = ["benchmark"],
        libraries = ["libbenchmark.so", "libbenchmark_main.a"],
    )
    system_repository(
        name = "spdlog",
        apt = "libspdlog-dev libfmt-dev",
        build_file = "//third_party:packages/spdlog.BUILD",
        headers = ["spdlog", "fmt"],
    )
    system_repository(
        name = "nlohmann_json",
        apt = "nlohmann-json3-dev",
        build_file = "//third_party:packages/nlohmann_json.BUILD",
        headers = ["nlohmann"],
    )
    system_repository(
        name = "cli11",
        apt = "libcli11-dev",
        build_file = "//third_party:packages/cli11.BUILD",
        headers = ["CLI"],
    )
