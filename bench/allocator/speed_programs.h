// SPDX-License-Identifier: Apache-2.0
//
// The sequences of requests and frees that allocators are timed with, in the form of traces:
//
//     hit      64 live blocks with sizes drawn from all requests of the recorded traces; each in
//              turn is freed and its size requested again: what a steady program does
//     traces   the recorded traces, one after another, each from nothing to nothing
//     rmm      the pattern of RMM's benchmark of random allocations: 10,000 requests of uniform
//              size up to 1, 64 and 1024 MiB, 73 of 100 steps a request while at most 16,000 MiB
//              are live, else the free of a random block
//     cub      sizes over the bins of cub::CachingDeviceAllocator (512 bytes to 2 MiB by factors
//              of 8, any size within a bin alike), 128 live, a random one replaced
//
// Threads: pure functions of their arguments; the same arguments give the same sequence. Ownership:
// the result is the caller's. Another program is one more case in MakeSpeedProgram.

#ifndef EBBTIDE_BENCH_ALLOCATOR_SPEED_PROGRAMS_H_
#define EBBTIDE_BENCH_ALLOCATOR_SPEED_PROGRAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/allocator/trace.h"

namespace ebbtide::bench {

// `prologue` runs once, `loop` again and again; both use the same slots.
struct SpeedProgram {
  std::vector<TraceOp> prologue;
  std::vector<TraceOp> loop;
  uint32_t slots = 0;
};

// True for the programs that are made of recorded traces.
bool NeedsTraces(const std::string& name);

// What thread number `thread` of `threads` runs. Blocks of rmm's are limited to its share of the
// live bytes, so that all threads together keep to them.
// Errors: NotFound for a name that is none of the above.
absl::StatusOr<SpeedProgram> MakeSpeedProgram(const std::string& name,
                                              const std::vector<Trace>& traces, int thread,
                                              int threads);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_SPEED_PROGRAMS_H_
