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
// Where the device gives memory in large pieces, which come and go only as a whole, the map also
// knows where pieces begin, and "releasable" means granules of pieces that lie wholly inside.
//
// Each free block carries a stamp, the latest of the moments at which its parts were freed as the
// owner counts them. The owner knows up to which stamp the device is done with what it had queued
// ("quiet"); only quiet memory may be given back or moved.
//
// Thread safety: none, the owner locks; only the ledger is shared. Ownership: the heap owns its
// segments and blocks; memory goes back to the device with the heap.

#ifndef EBBTIDE_ALLOCATOR_HEAP_H_
#define EBBTIDE_ALLOCATOR_HEAP_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/device_memory.h"
#include "allocator/free_index.h"
#include "allocator/granule_map.h"
#include "allocator/ledger.h"
#include "allocator/stream_order.h"
#include "allocator/usage_meter.h"

namespace ebbtide {

class Heap;
struct Segment;

// Whom a heap belongs to, for those who come from a block.
struct HeapOwner {
  explicit HeapOwner(StreamId id) : stream_id(id) {}
  std::atomic<StreamId> stream_id;
};

struct Block {
  explicit Block(Heap* owner) : heap(owner) {}

  Heap* heap;  // never changes, also when the Block is used again
  uintptr_t begin = 0;
  uintptr_t end = 0;
  Block* prev = nullptr;  // address neighbours in the segment
  Block* next = nullptr;
  Segment* segment = nullptr;
  bool free = false;
  bool committed = false;  // of a live block: known to have memory behind all of it
  int64_t asked = 0;       // of a live block: the owner's to use
  int64_t request = -1;    // likewise

  // Of a free block only.
  uintptr_t run_begin = 0;  // the known run of committed bytes; empty when both are equal
  uintptr_t run_end = 0;
  size_t releasable = 0;  // committed granules, in whole pieces, wholly inside
  uint64_t stamp = 0;     // when its latest part was freed
  FreeLink<Block> size_link;
  FreeLink<Block> run_link;
  FreeLink<Block> releasable_link;

  size_t size() const { return end - begin; }
  size_t run_size() const { return run_end - run_begin; }
};

struct Segment {
  Segment(uintptr_t address, size_t bytes, size_t granules, bool committed, bool in_pieces)
      : begin(address),
        size(bytes),
        map(granules, committed),
        starts(in_pieces ? granules : 0, false) {}
  uintptr_t begin;
  size_t size;
  GranuleMap map;
  GranuleMap starts;       // granules with which a piece begins; empty where each granule is one
  size_t place = 0;        // in Heap::segments_
  Block* first = nullptr;  // the block at `begin`
};

class Heap {
 public:
  static constexpr size_t kAlignment = 64;
  // A `quiet` that covers every stamp.
  static constexpr uint64_t kAllQuiet = UINT64_MAX;

  // From which end of a free range a block is cut, where there is a choice. Blocks that stay and
  // blocks that come and go are better kept apart.
  enum class End { kLow, kHigh };

  Heap(Ledger* ledger, HeapOwner* owner);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  HeapOwner* owner() const { return owner_; }

  // Cuts a live block of `size` bytes out of the free ones, or returns nullptr when no free block
  // is large enough. Some of its granules may have no memory yet: call CommitBlock, or Abandon to
  // undo. REQUIRES: size is a positive multiple of 64, alignment a power of two of at least 64.
  Block* Carve(size_t size, size_t alignment, End end = End::kLow);

  // Makes a new segment of at least `bytes` the region, in which the owner chooses places itself;
  // one that there was becomes a segment like any other. Errors: those of AddSegment.
  absl::Status AddRegion(size_t bytes);

  // 0 when there is none: without use it goes back to the device as other segments do.
  size_t region_size() const { return region_ == nullptr ? 0 : region_->size; }
  uintptr_t region_begin() const { return region_ == nullptr ? 0 : region_->begin; }

  // As Carve, but at `begin`, or nullptr when [begin, begin + size) is not all free and in the
  // region. `below` is the last live block that begins at or before `begin`, if that is in the
  // region. REQUIRES: size and begin are multiples of 64.
  Block* CarveAt(uintptr_t begin, size_t size, const Block* below);

  // True when Carve finds `size` bytes that have memory already, but for alignment.
  bool HasCommitted(size_t size) const { return by_run_.Find(size) != nullptr; }

  // Adds a segment of at least `bytes`, of a size that suits the device; `exact` takes no more than
  // needed. ResourceExhausted when the device has nothing or, without partial decommit, the budget
  // does not allow it.
  absl::Status AddSegment(size_t bytes, bool exact);

  // The size that AddSegment(bytes, exact) will ask for.
  size_t SegmentSize(size_t bytes, bool exact) const;

  // Bytes that CommitBlock must obtain at least.
  int64_t UncommittedBytes(const Block* block) const;

  // Puts memory behind all of `block`, and behind the rest of the device's preferred unit around it
  // as far as that is free and the budget allows. ResourceExhausted when the budget or the device
  // does not. On error some of it may be committed: Abandon the block.
  absl::Status CommitBlock(Block* block);

  // Moves memory of quiet free blocks of `source`, which may be this heap, to where `block` has
  // none, with at most *calls calls of the device (counted down), until `wanted` bytes have been
  // moved. Returns the bytes moved. REQUIRES: the device supports moving.
  int64_t MoveInto(Block* block, Heap* source, int64_t wanted, uint64_t quiet, int* calls);

  // Makes `block`, all of which is committed, free; merges it with its neighbours.
  void Release(Block* block, uint64_t stamp);

  // The same for a block from Carve whose memory could not be had.
  void Abandon(Block* block);

  // Gives committed memory of quiet free blocks back to the device, whole pieces or whole segments,
  // until `wanted` bytes have gone, *calls calls of the device were made (counted down) or nothing
  // is left. Returns the bytes given back.
  int64_t GiveBack(int64_t wanted, uint64_t quiet, int* calls);

  // What GiveBack can give when what is stamped up to `quiet` is quiet. Linear in all blocks; for
  // when all else failed.
  int64_t CountReleasable(uint64_t quiet = kAllQuiet) const;

  // What the heap holds of the device. Memory that moves here from another heap comes like any
  // other.
  const Tally& held() const { return held_; }
  void RestartPeak() { held_.peak = held_.now(); }

  size_t largest_free() const { return by_size_.LargestKey(); }

  // Calls visit(const Block&) for all blocks, segment by segment, by address.
  template <typename Visitor>
  void VisitBlocks(const Visitor& visit) const {
    for (const auto& segment : segments_) {
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        visit(*block);
      }
    }
  }

  // Calls run(begin, end) for each range with memory behind it, by address in each segment, and
  // after it block(const Block&, begin, end) for the part of each block that lies in it.
  template <typename RunVisitor, typename BlockVisitor>
  void VisitCommitted(const RunVisitor& run, const BlockVisitor& block) const {
    for (const auto& segment : segments_) {
      const uintptr_t base = GranuleDown(segment->begin);
      const uintptr_t limit = segment->size >> shift_;
      const Block* at = segment->first;
      for (uintptr_t i = segment->map.FindNext(0, limit, true); i < limit;) {
        const uintptr_t stop = segment->map.FindNext(i, limit, false);
        const Span span{(i + base) << shift_, (stop + base) << shift_};
        run(span.begin, span.end);
        while (at->end <= span.begin) at = at->next;
        for (; at != nullptr && at->begin < span.end; at = at->next) {
          block(*at, std::max(at->begin, span.begin), std::min(at->end, span.end));
          if (at->end > span.end) break;
        }
        i = segment->map.FindNext(stop, limit, true);
      }
    }
  }

  // Walks everything and aborts on the first broken invariant. Linear; for tests.
  void CheckInvariants() const;

  // Committed bytes as the granule maps say. Linear; for tests.
  int64_t CountCommitted() const;

 private:
  struct Span {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int64_t bytes() const { return static_cast<int64_t>(end - begin); }
  };

  uintptr_t GranuleUp(uintptr_t address) const { return (address + granule_ - 1) >> shift_; }
  uintptr_t GranuleDown(uintptr_t address) const { return address >> shift_; }
  // Granules wholly inside [begin, end).
  size_t WholeGranules(uintptr_t begin, uintptr_t end) const;
  // Releasable granules inside [begin, end), all of which is committed.
  size_t ReleasableOfRun(const Segment& segment, uintptr_t begin, uintptr_t end) const;
  size_t CountReleasable(const Block* block) const;
  // The piece that begins before and ends after `border`; empty when there is none.
  Span PieceAstride(const Segment& segment, uintptr_t border) const;
  // Shrinks a committed span of whole granules to the pieces that lie wholly inside.
  Span TrimToPieces(const Segment& segment, Span span) const;
  bool SpansSegment(const Block* block) const;

  Block* NewBlock(Segment* segment, uintptr_t begin, uintptr_t end);
  void DeleteBlock(Block* block);
  void Index(Block* block);
  void Unindex(Block* block);

  Block* FindPlace(size_t size, size_t alignment, End end, uintptr_t* place) const;
  void Split(Block* block, uintptr_t begin, uintptr_t end);
  Block* SplitOff(Block* from, uintptr_t begin, uintptr_t end);
  void SetReleasableOfParts(Block* block, size_t releasable, bool whole, Block* left, Block* right);
  int64_t CountUncommitted(const Block* block) const;
  void MergeNext(Block* block);
  void MakeFree(Block* block);
  void FindRun(Block* block);
  void CheckBlock(const Block* block) const;

  absl::Status CommitGranules(Block* block, uintptr_t first, uintptr_t last);
  absl::Status CommitRun(Block* block, uintptr_t begin, uintptr_t end);
  void MarkCommitted(Block* block, Span span, size_t piece);
  void NoteCommitted(Block* neighbour, uintptr_t begin, uintptr_t end);
  Span FindReleasable(Block* block) const;
  Span PickReleasable(Block* block, int64_t wanted) const;
  void MarkGone(Block* block, Span span);
  Block* FindQuiet(uint64_t quiet, std::vector<Block*>* noisy);
  void Restore(const std::vector<Block*>& noisy);
  int64_t GiveBackPart(Block* block, int64_t wanted);
  void Remember(HistoryAction action, Span span) const {
    ledger_->Remember(action, span.begin, span.bytes(), owner_->stream_id);
  }
  int64_t MoveRun(Block* block, Heap* source, Block* from, int64_t wanted);
  int64_t DropSegment(Block* block);
  bool MayDrop(const Block* block) const;
  void DropEmptySegments();

  Ledger* const ledger_;
  HeapOwner* const owner_;
  const size_t granule_;
  const int shift_;
  const size_t unit_;
  const bool partial_;
  const size_t large_piece_;
  const bool in_pieces_;

  std::vector<std::unique_ptr<Segment>> segments_;
  Segment* region_ = nullptr;  // one of them
  size_t reserved_ = 0;
  Tally held_;
  std::deque<Block> storage_;  // never shrinks, so that a stale pointer to a Block is still a Block
  Block* spare_ = nullptr;     // unused ones, linked by next

  FreeIndex<Block, &Block::size_link> by_size_;
  FreeIndex<Block, &Block::run_link> by_run_;
  FreeIndex<Block, &Block::releasable_link> by_releasable_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HEAP_H_
