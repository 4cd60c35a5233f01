// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/native_model.h"

#include <algorithm>

namespace ebbtide::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMinBlock = 512;
constexpr int64_t kSmallMax = kMiB;
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kSharedBelow = 10 * kMiB;
constexpr int64_t kSharedSegment = 20 * kMiB;
constexpr int64_t kSegmentUnit = 2 * kMiB;

}  // namespace

NativeModel::Pool& NativeModel::PoolOf(int64_t rounded) {
  return rounded <= kSmallMax ? small_ : large_;
}

ModelBlock* NativeModel::NewSegment(int64_t rounded, uint32_t stream) {
  int64_t size = RoundUpTo(rounded, kSegmentUnit);
  if (rounded <= kSmallMax) {
    size = kSmallSegment;
  } else if (rounded < kSharedBelow) {
    size = kSharedSegment;
  }
  if (size > capacity_ - held_) {
    ++driver_calls_;  // the call that fails
    ReleaseCached(&large_);
    ReleaseCached(&small_);
  }
  ++driver_calls_;
  if (size > capacity_ - held_) return nullptr;
  held_ += size;
  peak_held_ = std::max(peak_held_, held_);
  return store_.NewSegment(size, stream, kSegmentUnit);
}

void NativeModel::ReleaseCached(Pool* pool) {
  for (auto it = pool->free.begin(); it != pool->free.end();) {
    ModelBlock* block = *it;
    if (block->prev != nullptr || block->next != nullptr) {
      ++it;
      continue;
    }
    it = pool->free.erase(it);
    held_ -= block->size;
    ++driver_calls_;
    store_.Delete(block);
  }
}

AllocatorModel::Handle NativeModel::Allocate(int64_t bytes, uint32_t stream) {
  const int64_t rounded = RoundUpTo(bytes, kMinBlock);
  Pool& pool = PoolOf(rounded);
  ModelBlock* block = nullptr;
  if (const auto found = FindBestFit(pool.free, rounded, stream); found != pool.free.end()) {
    block = *found;
    pool.free.erase(found);
  } else {
    block = NewSegment(rounded, stream);
    if (block == nullptr) return 0;
  }
  const int64_t rest = block->size - rounded;
  if (pool.small ? rest >= kMinBlock : rest > kSmallMax) {
    pool.free.insert(store_.Split(block, rounded));
  }
  block->live = true;
  return reinterpret_cast<Handle>(block);
}

void NativeModel::Free(Handle handle) {
  auto* block = reinterpret_cast<ModelBlock*>(handle);
  // The small pool cuts all its blocks to size, and the large one holds none that is smaller.
  Pool& pool = PoolOf(block->size);
  block->live = false;
  if (ModelBlock* next = block->next; next != nullptr && !next->live) {
    pool.free.erase(next);
    store_.MergeNext(block);
  }
  if (ModelBlock* prev = block->prev; prev != nullptr && !prev->live) {
    pool.free.erase(prev);
    store_.MergeNext(prev);
    block = prev;
  }
  pool.free.insert(block);
}

}  // namespace ebbtide::bench
