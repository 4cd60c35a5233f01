// SPDX-License-Identifier: Apache-2.0
//
// How much memory allocators hold for the same requests: the traces replayed against Ebbtide's
// allocator and against models of others. Waste is 1 - peak live / peak held, where live counts
// the bytes that were requested.
//
// Threads: one at a time. Ownership: results belong to the caller. Another allocator is one more
// column in waste_table.cc.

#ifndef EBBTIDE_BENCH_ALLOCATOR_WASTE_TABLE_H_
#define EBBTIDE_BENCH_ALLOCATOR_WASTE_TABLE_H_

#include <iosfwd>
#include <vector>

#include "bench/allocator/trace.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {

// Prints peak held, waste and driver calls of each trace, then how far the models of PyTorch's
// allocators are from the figures known for them. Fills (*json)["waste"][TRACE][ALLOCATOR] with
// fractions and (*json)["driver_calls"][TRACE][ALLOCATOR] with calls per thousand requests.
void PrintWaste(const std::vector<Trace>& traces, std::ostream& out, nlohmann::ordered_json* json);

// Prints which allocators get through each trace when they may hold 102 % of its peak live bytes.
// Fills (*json)["tight"][TRACE], "ok" or "oom", for Ebbtide.
void PrintTight(const std::vector<Trace>& traces, std::ostream& out, nlohmann::ordered_json* json);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_WASTE_TABLE_H_
