// SPDX-License-Identifier: Apache-2.0
//
// The parts that the models of other allocators share: blocks that lie one after another in a
// segment, free ones found by stream, size and address (best fit, the lowest first among equals),
// neighbours that are both free merged.
//
// Threads: one at a time. Ownership: a BlockStore owns its blocks; the lists and sets point to
// them.

#ifndef EBBTIDE_BENCH_ALLOCATOR_MODEL_BLOCKS_H_
#define EBBTIDE_BENCH_ALLOCATOR_MODEL_BLOCKS_H_

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace ebbtide::bench {

constexpr int64_t RoundUpTo(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct ModelBlock {
  int64_t address = 0;
  int64_t size = 0;
  uint32_t stream = 0;
  bool live = false;
  bool mapped = true;  // false: addresses without memory
  ModelBlock* prev = nullptr;
  ModelBlock* next = nullptr;
};

struct BySize {
  bool operator()(const ModelBlock* a, const ModelBlock* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    if (a->size != b->size) return a->size < b->size;
    return a->address < b->address;
  }
};

struct ByAddress {
  bool operator()(const ModelBlock* a, const ModelBlock* b) const {
    if (a->stream != b->stream) return a->stream < b->stream;
    return a->address < b->address;
  }
};

using BlocksBySize = std::set<ModelBlock*, BySize>;
using BlocksByAddress = std::set<ModelBlock*, ByAddress>;

// The first of `blocks` that is of this stream and has `size` bytes or more, or end().
BlocksBySize::iterator FindBestFit(const BlocksBySize& blocks, int64_t size, uint32_t stream);

class BlockStore {
 public:
  // A block without neighbours that begins at a multiple of `alignment`; no other segment touches
  // its addresses.
  ModelBlock* NewSegment(int64_t size, uint32_t stream, int64_t alignment);

  // Cuts `block` after `size` bytes and returns the rest, its new neighbour.
  ModelBlock* Split(ModelBlock* block, int64_t size);

  // Joins `block` with its successor, which goes. REQUIRES: there is one.
  void MergeNext(ModelBlock* block);

  // Takes a block without neighbours away.
  void Delete(ModelBlock* block);

 private:
  ModelBlock* New();

  std::deque<ModelBlock> storage_;
  std::vector<ModelBlock*> spare_;
  int64_t next_address_ = 0;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_MODEL_BLOCKS_H_
