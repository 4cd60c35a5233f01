// SPDX-License-Identifier: Apache-2.0
//
// Heap is the address-ordered part of the caching allocator: segments of reserved addresses, cut
// into blocks that are live or free, with neighbours that are both free always merged. It knows
// which granules have memory behind them:
//
//     segment   |  live  |      free      | live |              free                 |
//     granules  [###][###][###][...][...][###][###][###][...][...][...][...][...][...]
//                         `-- run --'                `- run -'
//
// A granule that a live block touches is always committed. Of a free block the heap knows exactly
// how many committed granules lie wholly inside (they can be given back), and one run of committed
// bytes (where a request is best placed); the run is a hint, the granule map is the truth.
//
// The ledger holds what is shared by the heaps of one allocator. Thread safety: none, the owner
// locks. Ownership: the heap owns its segments and blocks; memory goes back to the device with the
// heap.

#ifndef EBBTIDE_ALLOCATOR_HEAP_H_
#define EBBTIDE_ALLOCATOR_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/device_memory.h"
#include "allocator/free_index.h"
#include "allocator/granule_map.h"

namespace ebbtide {

// The account that all heaps of an allocator write to. Invariant: held <= the budget at every
// Commit.
struct HeapLedger {
  DeviceMemory* device = nullptr;
  int64_t budget = 0;
  int64_t held = 0;
  int64_t peak_held = 0;
  int64_t reserved = 0;
  int64_t device_commits = 0;
  int64_t device_decommits = 0;

  void Grow(int64_t bytes) {
    held += bytes;
    if (held > peak_held) peak_held = held;
  }
};

struct Segment;

struct Block {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  Block* prev = nullptr;  // address neighbours in the segment
  Block* next = nullptr;
  Segment* segment = nullptr;
  bool free = false;
  bool committed = false;  // of a live block: known to have memory behind all of it

  // Of a free block only.
  uintptr_t run_begin = 0;  // the known run of committed bytes; empty when both are equal
  uintptr_t run_end = 0;
  size_t releasable = 0;  // committed granules wholly inside
  FreeLink<Block> size_link;
  FreeLink<Block> run_link;
  FreeLink<Block> releasable_link;

  size_t size() const { return end - begin; }
  size_t run_size() const { return run_end - run_begin; }
};

struct Segment {
  Segment(uintptr_t address, size_t bytes, size_t granules, bool committed)
      : begin(address), size(bytes), map(granules, committed) {}
  uintptr_t begin;
  size_t size;
  GranuleMap map;
  size_t place = 0;        // in Heap::segments_
  Block* first = nullptr;  // the block at `begin`
};

class Heap {
 public:
  static constexpr size_t kAlignment = 64;

  explicit Heap(HeapLedger* ledger);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Cuts a live block of `size` bytes out of the free ones, or returns nullptr when no free block
  // is large enough. Some of its granules may have no memory yet: call CommitBlock, or Abandon to
  // undo. REQUIRES: size is a positive multiple of 64, alignment a power of two of at least 64.
  Block* Carve(size_t size, size_t alignment);

  // Adds a segment of at least `bytes`, of a size that suits the device; `exact` takes no more than
  // needed. Does not look at the budget; without partial decommit held grows by the segment's size.
  absl::Status AddSegment(size_t bytes, bool exact);

  // The size that AddSegment(bytes, exact) will ask for.
  size_t SegmentSize(size_t bytes, bool exact) const;

  // Bytes that CommitBlock must obtain at least.
  int64_t UncommittedBytes(const Block* block) const;

  // Puts memory behind all of `block`, and behind the rest of the device's preferred unit around it
  // as far as that is free and the budget allows. REQUIRES: held + UncommittedBytes(block) <=
  // budget. On error some of it may be committed: Abandon the block.
  absl::Status CommitBlock(Block* block);

  // Makes `block`, all of which is committed, free; merges it with its neighbours.
  void Release(Block* block);

  // The same for a block from Carve whose memory could not be had.
  void Abandon(Block* block);

  // Gives committed memory of free blocks back to the device, whole granules or whole segments,
  // until `wanted` bytes have gone or nothing is left. Returns the bytes given back.
  int64_t GiveBack(int64_t wanted);

  size_t largest_free() const { return by_size_.LargestKey(); }

  // Walks everything and aborts on the first broken invariant. Linear; for tests.
  void CheckInvariants() const;

  // Committed bytes as the granule maps say. Linear; for tests.
  int64_t CountCommitted() const;

 private:
  uintptr_t GranuleUp(uintptr_t address) const { return (address + granule_ - 1) >> shift_; }
  uintptr_t GranuleDown(uintptr_t address) const { return address >> shift_; }
  // Granules wholly inside [begin, end).
  size_t WholeGranules(uintptr_t begin, uintptr_t end) const;
  size_t CountWhole(const Block* block) const;
  bool SpansSegment(const Block* block) const;

  Block* NewBlock(Segment* segment, uintptr_t begin, uintptr_t end);
  void DeleteBlock(Block* block);
  void Index(Block* block);
  void Unindex(Block* block);

  Block* FindPlace(size_t size, size_t alignment, uintptr_t* place) const;
  void Split(Block* block, uintptr_t begin, uintptr_t end);
  Block* SplitOff(Block* from, uintptr_t begin, uintptr_t end);
  void SetReleasableOfParts(Block* block, size_t releasable, bool whole, Block* left, Block* right);
  int64_t CountUncommitted(const Block* block) const;
  void MergeNext(Block* block);
  void MakeFree(Block* block);
  void FindRun(Block* block);
  void CheckBlock(const Block* block) const;

  absl::Status CommitGranules(Block* block, uintptr_t first, uintptr_t last);
  void NoteCommitted(Block* neighbour, uintptr_t begin, uintptr_t end);
  int64_t GiveBackPart(Block* block, int64_t wanted);
  int64_t DropSegment(Block* block);
  void DropEmptySegments();

  HeapLedger* const ledger_;
  const size_t granule_;
  const int shift_;
  const size_t unit_;
  const bool partial_;

  std::vector<std::unique_ptr<Segment>> segments_;
  size_t reserved_ = 0;
  std::deque<Block> storage_;  // never shrinks, so that a stale pointer to a Block is still a Block
  Block* spare_ = nullptr;     // unused ones, linked by next

  FreeIndex<Block, &Block::size_link> by_size_;
  FreeIndex<Block, &Block::run_link> by_run_;
  FreeIndex<Block, &Block::releasable_link> by_releasable_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HEAP_H_
