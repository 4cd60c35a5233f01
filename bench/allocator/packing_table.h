// SPDX-License-Identifier: Apache-2.0
//
// How low the packer of planned placement packs the problems of minimalloc, and how long it takes.
//
// Threads: one at a time.
// Ownership: nothing is kept.

#ifndef EBBTIDE_BENCH_ALLOCATOR_PACKING_TABLE_H_
#define EBBTIDE_BENCH_ALLOCATOR_PACKING_TABLE_H_

#include <iosfwd>
#include <vector>

#include "bench/allocator/minimalloc_problem.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {

// Packs each problem `repeats` times, prints a line for each with the median processor time, and
// fills
// (*json)["packing"][PROBLEM] with height and capacity in bytes and ms. A problem without a
// capacity is measured against its most live bytes, the lower bound.
void PrintPacking(const std::vector<MinimallocProblem>& problems, int repeats, std::ostream& out,
                  nlohmann::ordered_json* json);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_PACKING_TABLE_H_
