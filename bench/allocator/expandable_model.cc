// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/expandable_model.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace ebbtide::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMinBlock = 512;
constexpr int64_t kSmallMax = kMiB;
constexpr int64_t kSmallHandle = 2 * kMiB;
constexpr int64_t kLargeHandle = 20 * kMiB;

// Addresses cost nothing: more than any trace needs, in whole handles of both kinds. (The original
// takes 1 1/8 of the device's memory.)
constexpr int64_t kRange = kLargeHandle << 16;

bool IsFree(const ModelBlock* block) { return block != nullptr && !block->live; }

// The bytes of a free block and of the addresses without memory right behind it.
int64_t ExpandableSize(const ModelBlock* block) {
  const ModelBlock* next = block->next;
  return block->size + (next != nullptr && !next->mapped ? next->size : 0);
}

// True when the free blocks from this one on, with memory or not, have room for `size` bytes.
bool HasRoom(const ModelBlock* block, int64_t size) {
  for (; size > 0 && IsFree(block); block = block->next) size -= block->size;
  return size <= 0;
}

}  // namespace

ExpandableModel::ExpandableModel(int64_t capacity)
    : capacity_(capacity), small_{kSmallHandle, {}, {}}, large_{kLargeHandle, {}, {}} {}

ExpandableModel::Pool& ExpandableModel::PoolOf(int64_t rounded) {
  return rounded <= kSmallMax ? small_ : large_;
}

// Best fit by the size that a block could grow to: a block at the edge of the memory is left alone
// while another one fits.
ModelBlock* ExpandableModel::TakeFree(Pool* pool, int64_t size, uint32_t stream) {
  auto best = FindBestFit(pool->free, size, stream);
  if (best == pool->free.end()) return nullptr;
  for (auto next = std::next(best); next != pool->free.end() && (*next)->stream == stream &&
                                    ExpandableSize(*next) < ExpandableSize(*best);
       ++next) {
    best = next;
  }
  ModelBlock* block = *best;
  pool->free.erase(best);
  return block;
}

// The lowest place where free blocks and addresses without memory have room for `size` bytes.
ModelBlock* ExpandableModel::FindRoom(Pool* pool, int64_t size, uint32_t stream) {
  ModelBlock key;
  key.stream = stream;
  for (auto it = pool->unmapped.lower_bound(&key);
       it != pool->unmapped.end() && (*it)->stream == stream; ++it) {
    ModelBlock* block = IsFree((*it)->prev) ? (*it)->prev : *it;
    if (HasRoom(block, size)) return block;
  }
  ++driver_calls_;
  ModelBlock* range = store_.NewSegment(kRange, stream, pool->handle_size);
  range->mapped = false;
  pool->unmapped.insert(range);
  return range;
}

// Puts memory behind the beginning of `block`, which has none, and makes that a free block, merged
// with its neighbours. Returns nullptr, and changes nothing, when the device has too little.
ModelBlock* ExpandableModel::Map(Pool* pool, ModelBlock* block, int64_t size) {
  const int64_t mapped = RoundUpTo(size, pool->handle_size);
  const int64_t handles = mapped / pool->handle_size;
  const int64_t possible = std::min(handles, (capacity_ - held_) / pool->handle_size);
  if (possible < handles) {
    driver_calls_ += 2 * possible + 1;  // made, a failure, undone
    return nullptr;
  }
  driver_calls_ += 2 * handles + 1;
  held_ += mapped;
  peak_held_ = std::max(peak_held_, held_);
  pool->unmapped.erase(block);
  if (mapped < block->size) pool->unmapped.insert(store_.Split(block, mapped));
  block->mapped = true;
  return InsertFree(pool, block);
}

ModelBlock* ExpandableModel::Grow(Pool* pool, int64_t size, uint32_t stream) {
  ModelBlock* block = FindRoom(pool, size, stream);
  if (!block->mapped) block = Map(pool, block, std::min(block->size, size));
  while (block != nullptr && block->size < size) {
    ModelBlock* next = block->next;  // without memory: a free block with memory would be merged
    block = Map(pool, next, std::min(size - block->size, next->size));
  }
  if (block != nullptr) pool->free.erase(block);
  return block;
}

AllocatorModel::Handle ExpandableModel::Allocate(int64_t bytes, uint32_t stream) {
  const int64_t rounded = RoundUpTo(bytes, kMinBlock);
  Pool& pool = PoolOf(rounded);
  ModelBlock* block = TakeFree(&pool, rounded, stream);
  if (block == nullptr) block = Grow(&pool, rounded, stream);
  if (block == nullptr) {
    UnmapCached(&large_);
    UnmapCached(&small_);
    block = Grow(&pool, rounded, stream);
  }
  if (block == nullptr) return 0;
  if (block->size > rounded) pool.free.insert(store_.Split(block, rounded));
  block->live = true;
  return reinterpret_cast<Handle>(block);
}

void ExpandableModel::Free(Handle handle) {
  auto* block = reinterpret_cast<ModelBlock*>(handle);
  block->live = false;
  InsertFree(&PoolOf(block->size), block);
}

// Merges a free block with memory, which is in no set, with its neighbours of the same kind.
ModelBlock* ExpandableModel::InsertFree(Pool* pool, ModelBlock* block) {
  if (IsFree(block->next) && block->next->mapped) {
    pool->free.erase(block->next);
    store_.MergeNext(block);
  }
  if (IsFree(block->prev) && block->prev->mapped) {
    block = block->prev;
    pool->free.erase(block);
    store_.MergeNext(block);
  }
  pool->free.insert(block);
  return block;
}

void ExpandableModel::InsertUnmapped(Pool* pool, ModelBlock* block) {
  if (block->next != nullptr && !block->next->mapped) {
    pool->unmapped.erase(block->next);
    store_.MergeNext(block);
  }
  if (block->prev != nullptr && !block->prev->mapped) {
    block = block->prev;
    pool->unmapped.erase(block);
    store_.MergeNext(block);
  }
  pool->unmapped.insert(block);
}

void ExpandableModel::UnmapCached(Pool* pool) {
  const std::vector<ModelBlock*> blocks(pool->free.begin(), pool->free.end());
  for (ModelBlock* block : blocks) Unmap(pool, block);
}

// Takes the memory of the whole handles inside a free block away.
void ExpandableModel::Unmap(Pool* pool, ModelBlock* block) {
  const int64_t begin = RoundUpTo(block->address, pool->handle_size);
  const int64_t end = (block->address + block->size) / pool->handle_size * pool->handle_size;
  if (begin >= end) return;
  pool->free.erase(block);
  if (block->address + block->size > end) {
    pool->free.insert(store_.Split(block, end - block->address));
  }
  if (block->address < begin) {
    ModelBlock* rest = store_.Split(block, begin - block->address);
    pool->free.insert(block);
    block = rest;
  }
  held_ -= end - begin;
  driver_calls_ += 2 * (end - begin) / pool->handle_size;
  block->mapped = false;
  InsertUnmapped(pool, block);
}

}  // namespace ebbtide::bench
