// SPDX-License-Identifier: Apache-2.0
//
// A model of a pool like that of cudaMallocAsync. The driver's is not public: this one follows what
// its documentation says (a pool that grows as needed, all three reuse policies on, nothing given
// back below the release threshold, which frameworks set to "never"), and what programs see (it
// grows by multiples of 32 MiB). The rest is chosen: blocks of 512 bytes and up, best fit by (size,
// address), neighbours merged within a chunk. A freed block serves any stream, as the driver may
// insert the dependency. Over the capacity, chunks that are wholly free go back, then the pool
// grows by no more than the request, rounded to 2 MiB. That the driver also moves physical pages
// is left out: how is not known.
//
// Driver calls: one for each chunk that comes or goes. That every request is itself a call of the
// driver is not counted.
//
// Threads: one at a time. Ownership: it owns its blocks. See allocator_model.h.

#ifndef EBBTIDE_BENCH_ALLOCATOR_ASYNC_MODEL_H_
#define EBBTIDE_BENCH_ALLOCATOR_ASYNC_MODEL_H_

#include <cstdint>

#include "bench/allocator/allocator_model.h"
#include "bench/allocator/model_blocks.h"

namespace ebbtide::bench {

class AsyncModel : public AllocatorModel {
 public:
  // Never holds more than `capacity` bytes.
  explicit AsyncModel(int64_t capacity) : capacity_(capacity) {}

  Handle Allocate(int64_t bytes, uint32_t stream) override;
  void Free(Handle block) override;
  int64_t peak_held() const override { return peak_held_; }
  int64_t driver_calls() const override { return driver_calls_; }

 private:
  ModelBlock* NewChunk(int64_t rounded);
  void Trim();

  const int64_t capacity_;
  BlockStore store_;
  BlocksBySize free_;  // all under stream 0
  int64_t held_ = 0;
  int64_t peak_held_ = 0;
  int64_t driver_calls_ = 0;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_ASYNC_MODEL_H_
