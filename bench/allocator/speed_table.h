// SPDX-License-Identifier: Apache-2.0
//
// The speed of Ebbtide's allocator over host memory beside the malloc of the C library and those
// that can be preloaded in its place. Each measurement is a process of its own, speed_worker; the
// allocators take turns, all of it is repeated, and medians are shown.
//
// Threads: one at a time. Ownership: nothing is kept. Another allocator is one more row of the
// table in speed_table.cc.

#ifndef EBBTIDE_BENCH_ALLOCATOR_SPEED_TABLE_H_
#define EBBTIDE_BENCH_ALLOCATOR_SPEED_TABLE_H_

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {

struct PreloadedAllocator {
  std::string name;
  std::string library;  // a path, or what the dynamic linker finds by name
};

// The allocators besides the C library's own that this machine has. Those that it lacks are named
// on `out` with the package that holds them.
std::vector<PreloadedAllocator> FindPreloadable(std::ostream& out);

struct SpeedOptions {
  std::string worker;  // the program speed_worker
  std::string traces;  // a folder or an archive; empty: the programs that need it are left out
  std::vector<int> threads = {1, 2, 4, 8, 16};
  int rounds = 3;
  double seconds = 0.2;  // of each of a measurement's two parts
};

// Prints, for each program of speed_programs.h, nanoseconds of processor time a call, calls a
// second and the tail, by allocator and number of threads. Fills
// (*json)["hit_ns"][ALLOCATOR][THREADS] (program `hit`) and
// (*json)["speed"][PROGRAM][ALLOCATOR][THREADS] with all that was measured.
// Errors: Internal when a worker fails, or ran with another malloc than it should have.
absl::Status PrintSpeed(const SpeedOptions& options,
                        const std::vector<PreloadedAllocator>& preloadable, std::ostream& out,
                        nlohmann::ordered_json* json);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_SPEED_TABLE_H_
