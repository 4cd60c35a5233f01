// SPDX-License-Identifier: Apache-2.0
//
// Replays a recorded trace on an allocator: the one loop that benchmarks, tests and comparisons
// share. The allocator is given as two functions, so that ours, malloc and a model of somebody
// else's are driven alike.
//
// Threads: everything happens on the calling thread, in the order of the trace; an event says which
// thread it came from. Ownership: blocks that are live at the end of the trace are freed there.

#ifndef EBBTIDE_ALLOCATOR_TRACE_REPLAY_H_
#define EBBTIDE_ALLOCATOR_TRACE_REPLAY_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "allocator/allocation_trace.h"
#include "base/bytes.h"

namespace ebbtide {

struct ReplayResult {
  int64_t allocations = 0;  // successful ones
  int64_t frees = 0;        // of the trace; those after its end are not counted
  int64_t failures = 0;
  Bytes peak_live;  // of the bytes asked for by what succeeded
};

// Runs the whole trace. `allocate` returns the block for an event; an error counts as a failure,
// and the free of that block is skipped. `free` takes a block back and the event that frees it; for
// what is freed after the end, the event of its allocation.
ReplayResult Replay(const AllocationTrace& trace,
                    absl::FunctionRef<absl::StatusOr<void*>(const AllocationEvent&)> allocate,
                    absl::FunctionRef<void(void*, const AllocationEvent&)> free);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_TRACE_REPLAY_H_
