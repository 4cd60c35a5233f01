// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/async_model.h"

#include <algorithm>

namespace ebbtide::bench {
namespace {

constexpr int64_t kMinBlock = 512;
constexpr int64_t kChunkUnit = int64_t{32} << 20;
constexpr int64_t kPage = int64_t{2} << 20;

}  // namespace

ModelBlock* AsyncModel::NewChunk(int64_t rounded) {
  int64_t size = RoundUpTo(rounded, kChunkUnit);
  if (size > capacity_ - held_) Trim();
  if (size > capacity_ - held_) size = RoundUpTo(rounded, kPage);
  ++driver_calls_;
  if (size > capacity_ - held_) return nullptr;
  held_ += size;
  peak_held_ = std::max(peak_held_, held_);
  return store_.NewSegment(size, 0, kPage);
}

// Gives all chunks back that are wholly free.
void AsyncModel::Trim() {
  for (auto it = free_.begin(); it != free_.end();) {
    ModelBlock* block = *it;
    if (block->prev != nullptr || block->next != nullptr) {
      ++it;
      continue;
    }
    it = free_.erase(it);
    held_ -= block->size;
    ++driver_calls_;
    store_.Delete(block);
  }
}

AllocatorModel::Handle AsyncModel::Allocate(int64_t bytes, uint32_t /*stream*/) {
  const int64_t rounded = RoundUpTo(bytes, kMinBlock);
  ModelBlock* block = nullptr;
  if (const auto found = FindBestFit(free_, rounded, 0); found != free_.end()) {
    block = *found;
    free_.erase(found);
  } else {
    block = NewChunk(rounded);
    if (block == nullptr) return 0;
  }
  if (block->size > rounded) free_.insert(store_.Split(block, rounded));
  block->live = true;
  return reinterpret_cast<Handle>(block);
}

void AsyncModel::Free(Handle handle) {
  auto* block = reinterpret_cast<ModelBlock*>(handle);
  block->live = false;
  if (block->next != nullptr && !block->next->live) {
    free_.erase(block->next);
    store_.MergeNext(block);
  }
  if (block->prev != nullptr && !block->prev->live) {
    block = block->prev;
    free_.erase(block);
    store_.MergeNext(block);
  }
  free_.insert(block);
}

}  // namespace ebbtide::bench
