// SPDX-License-Identifier: Apache-2.0
//
// The input files of a benchmark: all *.csv of one folder, in the order of their names.
//
// Threads: a pure function.
// Ownership: the result is the caller's.

#ifndef EBBTIDE_BENCH_ALLOCATOR_CSV_FILES_H_
#define EBBTIDE_BENCH_ALLOCATOR_CSV_FILES_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ebbtide::bench {

// Errors: NotFound when there is no such folder or no such file in it.
absl::StatusOr<std::vector<std::filesystem::path>> ListCsvFiles(const std::string& folder);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_CSV_FILES_H_
