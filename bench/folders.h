// SPDX-License-Identifier: Apache-2.0
//
// Where a benchmark finds its files: the source tree, the folder that `bazel run` was called in,
// and the measurement data, which is no part of the project.
//
// Threads: any, as long as nobody changes the environment or the current folder meanwhile.
// Ownership: results are the caller's. Every default can be replaced by a flag of the benchmark.

#ifndef EBBTIDE_BENCH_FOLDERS_H_
#define EBBTIDE_BENCH_FOLDERS_H_

#include <filesystem>
#include <string>

namespace ebbtide::bench {

// The checkout under `bazel run`, else the current folder.
std::filesystem::path SourceTree();

// `path` as its writer meant it: `bazel run` starts programs in a folder of its own, and tells
// where it was called itself.
std::filesystem::path FromCaller(const std::string& path);

// Where the measurement data `path` is unless a flag says otherwise: in the folder that
// EBBTIDE_BENCH_DATA names if it is set, else in shared/data beside the checkout or inside of it.
// What is returned may be missing. An empty `path` stands for the whole folder.
std::string DataDefault(const std::string& path);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_FOLDERS_H_
