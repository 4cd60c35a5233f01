// SPDX-License-Identifier: Apache-2.0
//
// AllocatorModel is what a trace is replayed against to see how much memory an allocator holds:
// Ebbtide's own allocator over a simulated device, or a model of somebody else's placement rules.
// Blocks have addresses and nothing behind them.
//
// Threads: one at a time. Ownership: a block belongs to the model; the caller gives back what it
// was given. To add one: derive, and give it a column in bench/allocator/waste_table.cc.

#ifndef EBBTIDE_BENCH_ALLOCATOR_ALLOCATOR_MODEL_H_
#define EBBTIDE_BENCH_ALLOCATOR_ALLOCATOR_MODEL_H_

#include <cstdint>

#include "bench/allocator/trace.h"

namespace ebbtide::bench {

class AllocatorModel {
 public:
  // Stands for the block in Free; 0 is none.
  using Handle = uintptr_t;

  virtual ~AllocatorModel() = default;

  // Returns 0 when the device has no memory left for it. REQUIRES: bytes > 0.
  virtual Handle Allocate(int64_t bytes, uint32_t stream) = 0;
  virtual void Free(Handle block) = 0;

  // The most bytes ever held from the device, and the calls of the driver that a GPU would have
  // seen.
  virtual int64_t peak_held() const = 0;
  virtual int64_t driver_calls() const = 0;
};

struct Replay {
  bool ok = false;  // false: it ran out of memory, and the rest is what it was then
  int64_t peak_held = 0;
  int64_t driver_calls = 0;  // while it ran, the end of the process not included
};

// Runs a whole trace, or up to the request that does not fit, then frees what is live. `one_stream`
// takes all requests for those of one stream.
Replay ReplayTrace(const Trace& trace, AllocatorModel* model, bool one_stream = false);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_ALLOCATOR_MODEL_H_
