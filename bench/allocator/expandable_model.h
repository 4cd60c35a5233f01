// SPDX-License-Identifier: Apache-2.0
//
// A model of PyTorch's caching allocator for CUDA with expandable_segments:True, by the rules of
// its source (c10/cuda/CUDACachingAllocator.cpp), written anew:
//
//   * rounding, pools and streams as in native_model.h; a free block is cut whenever 512 bytes
//     or more are left
//   * each pair of stream and pool has a range of addresses; memory is put behind it in handles of
//     2 MiB (small pool) or 20 MiB (large pool)
//   * best fit by (size, address), where a block that ends at addresses without memory counts with
//     the size that it could grow to
//   * nothing fits: memory goes to the lowest addresses that have none, together with the free
//     block right before them, until the request fits
//   * over the capacity, the whole handles inside of free blocks go back, everywhere, and the
//     request is tried once more
//
// Driver calls: two for each handle that comes or goes, one for the access rights of each run that
// was mapped, one for each range.
//
// Threads: one at a time. Ownership: it owns its blocks. See allocator_model.h.

#ifndef EBBTIDE_BENCH_ALLOCATOR_EXPANDABLE_MODEL_H_
#define EBBTIDE_BENCH_ALLOCATOR_EXPANDABLE_MODEL_H_

#include <cstdint>

#include "bench/allocator/allocator_model.h"
#include "bench/allocator/model_blocks.h"

namespace ebbtide::bench {

class ExpandableModel : public AllocatorModel {
 public:
  // Never holds more than `capacity` bytes.
  explicit ExpandableModel(int64_t capacity);

  Handle Allocate(int64_t bytes, uint32_t stream) override;
  void Free(Handle block) override;
  int64_t peak_held() const override { return peak_held_; }
  int64_t driver_calls() const override { return driver_calls_; }

 private:
  struct Pool {
    int64_t handle_size;
    BlocksBySize free;         // with memory
    BlocksByAddress unmapped;  // without
  };

  Pool& PoolOf(int64_t rounded);
  static ModelBlock* TakeFree(Pool* pool, int64_t size, uint32_t stream);
  ModelBlock* FindRoom(Pool* pool, int64_t size, uint32_t stream);
  ModelBlock* Grow(Pool* pool, int64_t size, uint32_t stream);
  ModelBlock* Map(Pool* pool, ModelBlock* block, int64_t size);
  ModelBlock* InsertFree(Pool* pool, ModelBlock* block);
  void InsertUnmapped(Pool* pool, ModelBlock* block);
  void UnmapCached(Pool* pool);
  void Unmap(Pool* pool, ModelBlock* block);

  const int64_t capacity_;
  BlockStore store_;
  Pool small_;
  Pool large_;
  int64_t held_ = 0;
  int64_t peak_held_ = 0;
  int64_t driver_calls_ = 0;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_EXPANDABLE_MODEL_H_
