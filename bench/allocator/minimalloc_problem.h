// SPDX-License-Identifier: Apache-2.0
//
// Reads packing problems in minimalloc's format: CSV with the columns id,lower,upper,size, `upper`
// being one past the last instant. Its files are named PROBLEM.CAPACITY.csv.
//
// Threads: pure functions. Ownership: the result is the caller's. Another format gets a reader of
// its own.

#ifndef EBBTIDE_BENCH_ALLOCATOR_MINIMALLOC_PROBLEM_H_
#define EBBTIDE_BENCH_ALLOCATOR_MINIMALLOC_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/lifetime_packer.h"

namespace ebbtide::bench {

struct MinimallocProblem {
  std::string name;
  int64_t capacity = 0;  // in bytes; 0 when the file's name does not tell
  std::vector<Lifetime> lifetimes;
};

// Errors: NotFound when the file cannot be read; InvalidArgument when it is none of these.
absl::StatusOr<MinimallocProblem> ReadMinimallocProblem(const std::string& path);

// The *.csv files of a folder, in the order of their names. Errors: the same; NotFound also when
// there are none.
absl::StatusOr<std::vector<MinimallocProblem>> ReadMinimallocProblems(const std::string& folder);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_MINIMALLOC_PROBLEM_H_
