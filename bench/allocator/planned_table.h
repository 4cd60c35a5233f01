// SPDX-License-Identifier: Apache-2.0
//
// What planning ahead is worth: each trace is repeated as the iterations of a steady program, with
// and without plans, on memory that can be taken away in parts and on memory that cannot.
//
// Threads: pure functions. Ownership: none.

#ifndef EBBTIDE_BENCH_ALLOCATOR_PLANNED_TABLE_H_
#define EBBTIDE_BENCH_ALLOCATOR_PLANNED_TABLE_H_

#include <iosfwd>
#include <vector>

#include "bench/allocator/trace.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {

// Prints waste (1 - peak live / peak held) and driver calls of the last of several iterations, and
// fills (*json)["planned"][TRACE][DEVICE] with both, by "on" and "off". What a trace leaves live
// stays from the first iteration on, as parameters do.
void PrintPlanned(const std::vector<Trace>& traces, std::ostream& out,
                  nlohmann::ordered_json* json);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_PLANNED_TABLE_H_
