// SPDX-License-Identifier: Apache-2.0
//
// A model of PyTorch's caching allocator for CUDA in its default setting, by the rules of its
// source (c10/cuda/CUDACachingAllocator.cpp), written anew:
//
//   * a request is rounded to 512 bytes; up to 1 MiB it comes from the small pool, else the large
//   * segments: 2 MiB in the small pool; in the large one 20 MiB for less than 10 MiB, else the
//     request rounded to 2 MiB
//   * best fit by (size, address) among the free blocks of the stream and pool; what is left over
//     is cut off when it is at least 512 bytes (small pool) or more than 1 MiB (large pool)
//   * a freed block merges with its free neighbours in the segment
//   * over the capacity, all segments that are wholly free go back to the driver, on every stream
//     and in both pools, and the request is tried once more
//
// Settings that are off by default (garbage collection, the size limit of splits, rounding to
// powers of two) are left out; an event never delays a reuse, because traces have none.
//
// Threads: one at a time. Ownership: it owns its blocks. See allocator_model.h.

#ifndef EBBTIDE_BENCH_ALLOCATOR_NATIVE_MODEL_H_
#define EBBTIDE_BENCH_ALLOCATOR_NATIVE_MODEL_H_

#include <cstdint>

#include "bench/allocator/allocator_model.h"
#include "bench/allocator/model_blocks.h"

namespace ebbtide::bench {

class NativeModel : public AllocatorModel {
 public:
  // Never holds more than `capacity` bytes.
  explicit NativeModel(int64_t capacity) : capacity_(capacity) {}

  Handle Allocate(int64_t bytes, uint32_t stream) override;
  void Free(Handle block) override;
  int64_t peak_held() const override { return peak_held_; }
  int64_t driver_calls() const override { return driver_calls_; }

 private:
  struct Pool {
    bool small;
    BlocksBySize free;
  };

  Pool& PoolOf(int64_t rounded);
  ModelBlock* NewSegment(int64_t rounded, uint32_t stream);
  void ReleaseCached(Pool* pool);

  const int64_t capacity_;
  BlockStore store_;
  Pool small_{true, {}};
  Pool large_{false, {}};
  int64_t held_ = 0;
  int64_t peak_held_ = 0;
  int64_t driver_calls_ = 0;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_NATIVE_MODEL_H_
