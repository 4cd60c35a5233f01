// SPDX-License-Identifier: Apache-2.0

#include "allocator/heap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

uintptr_t AlignUp(uintptr_t address, size_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

uintptr_t AlignDown(uintptr_t address, size_t alignment) { return address & ~(alignment - 1); }

}  // namespace

Heap::Heap(Ledger* ledger, HeapOwner* owner)
    : ledger_(ledger),
      owner_(owner),
      granule_(ledger->device().granularity().count()),
      shift_(__builtin_ctzll(granule_)),
      unit_(ledger->device().preferred_unit().count()),
      partial_(ledger->device().supports_partial_decommit()),
      large_piece_(ledger->device().large_piece().count()),
      in_pieces_(partial_ && large_piece_ > granule_) {}

Heap::~Heap() {
  for (const auto& segment : segments_) {
    const absl::Status status = ledger_->device().Unreserve(
        reinterpret_cast<void*>(segment->begin), Bytes(static_cast<int64_t>(segment->size)));
    EBB_DCHECK(status.ok()) << status.ToString();
  }
}

size_t Heap::WholeGranules(uintptr_t begin, uintptr_t end) const {
  const uintptr_t first = GranuleUp(begin);
  const uintptr_t last = GranuleDown(end);
  return first < last ? last - first : 0;
}

Heap::Span Heap::PieceAstride(const Segment& segment, uintptr_t border) const {
  const uintptr_t base = GranuleDown(segment.begin);
  const uintptr_t at = GranuleDown(border) - base;
  if (!segment.map.Get(at)) return {};
  const bool aligned = (at + base) << shift_ == border;
  if (!in_pieces_) {
    if (aligned) return {};
    return {(at + base) << shift_, (at + base + 1) << shift_};
  }
  if (aligned && segment.starts.Get(at)) return {};
  const uintptr_t limit = segment.size >> shift_;
  const uintptr_t first = segment.starts.FindLast(0, at);
  const uintptr_t last = std::min(segment.starts.FindNext(at + 1, limit, true),
                                  segment.map.FindNext(at + 1, limit, false));
  return {(first + base) << shift_, (last + base) << shift_};
}

Heap::Span Heap::TrimToPieces(const Segment& segment, Span span) const {
  if (!in_pieces_) return span;
  const Span left = PieceAstride(segment, span.begin);
  if (left.bytes() > 0) span.begin = std::min(left.end, span.end);
  if (span.begin == span.end || span.end == segment.begin + segment.size) return span;
  const Span right = PieceAstride(segment, span.end);
  if (right.bytes() > 0) span.end = std::max(right.begin, span.begin);
  return span;
}

size_t Heap::ReleasableOfRun(const Segment& segment, uintptr_t begin, uintptr_t end) const {
  const Span span{GranuleUp(begin) << shift_, GranuleDown(end) << shift_};
  return span.begin < span.end ? TrimToPieces(segment, span).bytes() >> shift_ : 0;
}

// With pieces that reach over the block's ends left out.
size_t Heap::CountReleasable(const Block* block) const {
  const Segment& segment = *block->segment;
  Span span{GranuleUp(block->begin) << shift_, GranuleDown(block->end) << shift_};
  if (span.begin >= span.end) return 0;
  span = TrimToPieces(segment, span);
  const uintptr_t base = GranuleDown(segment.begin);
  return segment.map.Count(GranuleDown(span.begin) - base, GranuleDown(span.end) - base);
}

bool Heap::SpansSegment(const Block* block) const {
  return block->prev == nullptr && block->next == nullptr;
}

// Whether the free block `block` is a segment without memory that nobody is about to use.
bool Heap::MayDrop(const Block* block) const {
  return block->releasable == 0 && SpansSegment(block) && block->segment != region_;
}

Block* Heap::NewBlock(Segment* segment, uintptr_t begin, uintptr_t end) {
  Block* block = spare_;
  if (block != nullptr) {
    spare_ = block->next;
    *block = Block(this);
  } else {
    block = &storage_.emplace_back(this);
  }
  block->segment = segment;
  block->begin = begin;
  block->end = end;
  return block;
}

void Heap::DeleteBlock(Block* block) {
  block->next = spare_;
  spare_ = block;
}

void Heap::Index(Block* block) {
  if (block->releasable > 0 && block->run_begin == block->run_end) FindRun(block);
  by_size_.Insert(block, block->size());
  by_run_.Insert(block, block->run_size());
  // Without partial decommit only a whole segment can be given back.
  if (partial_ || SpansSegment(block)) {
    by_releasable_.Insert(block, block->releasable << shift_);
  }
}

void Heap::Unindex(Block* block) {
  by_size_.Remove(block);
  by_run_.Remove(block);
  by_releasable_.Remove(block);
}

// Sets the run to the first committed one inside the block.
void Heap::FindRun(Block* block) {
  const GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t limit = GranuleUp(block->end) - base;
  const uintptr_t first = map.FindNext(GranuleDown(block->begin) - base, limit, true);
  const uintptr_t last = map.FindNext(first, limit, false);
  block->run_begin = std::max(block->begin, (first + base) << shift_);
  block->run_end = std::min(block->end, (last + base) << shift_);
  if (first == limit) block->run_begin = block->run_end = block->begin;
}

// Where a request goes: into memory that is there already, else beside the largest piece of such
// memory when that covers a good part of it, else into the smallest sufficient range of addresses.
Block* Heap::FindPlace(size_t size, size_t alignment, End end, uintptr_t* place) const {
  const auto fits = [&](uintptr_t begin, uintptr_t end) {
    return AlignUp(begin, alignment) + size <= end;
  };
  const size_t padded = size + alignment - kAlignment;
  Block* block = by_run_.Find(size);
  if (block != nullptr && !fits(block->run_begin, block->run_end)) block = by_run_.Find(padded);
  if (block != nullptr) {
    const bool low_rest = block->run_begin != block->begin;
    const bool high_rest = block->run_end != block->end;
    const bool at_end = low_rest == high_rest ? end == End::kHigh : low_rest;
    *place =
        at_end ? AlignDown(block->run_end - size, alignment) : AlignUp(block->run_begin, alignment);
    return block;
  }
  block = by_run_.Largest();
  if (block == nullptr || block->size() < padded || block->run_size() * 4 < size) {
    block = by_size_.Find(size);
    if (block != nullptr && !fits(block->begin, block->end)) block = by_size_.Find(padded);
  }
  if (block == nullptr) return nullptr;
  const uintptr_t start = block->run_size() > 0 ? block->run_begin : block->begin;
  *place =
      fits(start, block->end) ? AlignUp(start, alignment) : AlignDown(block->end - size, alignment);
  return block;
}

// Takes [begin, end), one end of `from`, off into a free block with its part of the run.
Block* Heap::SplitOff(Block* from, uintptr_t begin, uintptr_t end) {
  Block* part = NewBlock(from->segment, begin, end);
  part->free = true;
  part->stamp = from->stamp;
  part->run_begin = std::clamp(from->run_begin, begin, end);
  part->run_end = std::clamp(from->run_end, begin, end);
  if (begin == from->begin) {
    part->prev = from->prev;
    part->next = from;
    if (from->prev != nullptr) from->prev->next = part;
    if (from->prev == nullptr) from->segment->first = part;
    from->prev = part;
    from->begin = end;
  } else {
    part->next = from->next;
    part->prev = from;
    if (from->next != nullptr) from->next->prev = part;
    from->next = part;
    from->end = begin;
  }
  return part;
}

// Shares the committed granules of a block that was cut between what is left of it. What the middle
// touches is counted in the map (short), so that only the shorter of the two rests must be.
void Heap::SetReleasableOfParts(Block* block, size_t releasable, bool whole, Block* left,
                                Block* right) {
  if (in_pieces_) {
    if (left != nullptr) left->releasable = CountReleasable(left);
    if (right != nullptr) right->releasable = CountReleasable(right);
    return;
  }
  if (whole) {  // everything was committed: plain arithmetic
    if (left != nullptr) left->releasable = WholeGranules(left->begin, left->end);
    if (right != nullptr) right->releasable = WholeGranules(right->begin, right->end);
    return;
  }
  if (left != nullptr && right != nullptr && right->size() < left->size()) std::swap(left, right);
  if (left != nullptr && right != nullptr) left->releasable = CountReleasable(left);
  Block* rest = right != nullptr ? right : left;
  if (rest == nullptr) return;
  const size_t counted = left != nullptr && right != nullptr ? left->releasable : 0;
  // Granules of the original block that are touched by the middle.
  uintptr_t first = GranuleDown(block->begin);
  uintptr_t last = GranuleUp(block->end);
  const uintptr_t begin =
      block->prev != nullptr && block->prev->free ? block->prev->begin : block->begin;
  const uintptr_t end = block->next != nullptr && block->next->free ? block->next->end : block->end;
  first = std::max(first, GranuleUp(begin));
  last = std::min(last, GranuleDown(end));
  const uintptr_t base = GranuleDown(block->segment->begin);
  size_t middle = 0;
  if (first < last) {
    middle = block->committed ? last - first : block->segment->map.Count(first - base, last - base);
  }
  EBB_DCHECK(releasable >= counted + middle);
  rest->releasable = releasable - counted - middle;
}

// Cuts the free block `block`, which is in no index, down to [begin, end) and makes it live.
void Heap::Split(Block* block, uintptr_t begin, uintptr_t end) {
  const bool whole = block->run_begin == block->begin && block->run_end == block->end;
  const size_t releasable = block->releasable;
  block->committed = begin >= block->run_begin && end <= block->run_end;
  Block* left = begin > block->begin ? SplitOff(block, block->begin, begin) : nullptr;
  Block* right = end < block->end ? SplitOff(block, end, block->end) : nullptr;
  SetReleasableOfParts(block, releasable, whole, left, right);
  block->free = false;
  block->run_begin = block->run_end = 0;
  block->releasable = 0;
  if (left != nullptr) Index(left);
  if (right != nullptr) Index(right);
}

Block* Heap::Carve(size_t size, size_t alignment, End end) {
  uintptr_t place = 0;
  Block* block = FindPlace(size, alignment, end, &place);
  if (block == nullptr) return nullptr;
  EBB_DCHECK(place >= block->begin && place + size <= block->end);
  Unindex(block);
  Split(block, place, place + size);
  return block;
}

Block* Heap::CarveAt(uintptr_t begin, size_t size, const Block* below) {
  if (region_ == nullptr) return nullptr;
  Block* block = region_->first;
  if (below != nullptr && below->segment == region_) {
    if (below->begin > begin || below->end > begin) return nullptr;
    block = below->next;
  }
  if (block == nullptr || !block->free || begin < block->begin || begin + size > block->end) {
    return nullptr;
  }
  Unindex(block);
  Split(block, begin, begin + size);
  return block;
}

// Merges the free block `block` with its free successor; neither is in an index.
void Heap::MergeNext(Block* block) {
  Block* right = block->next;
  const uintptr_t border = right->begin;
  block->releasable += right->releasable;
  block->stamp = std::max(block->stamp, right->stamp);
  const Span astride = PieceAstride(*block->segment, border);
  if (astride.begin >= block->begin && astride.end <= right->end) {
    block->releasable += astride.bytes() >> shift_;
  }
  if (block->run_size() > 0 && block->run_end == right->run_begin) {
    block->run_end = right->run_end;
  } else if (right->run_size() > block->run_size()) {
    block->run_begin = right->run_begin;
    block->run_end = right->run_end;
  }
  block->end = right->end;
  block->next = right->next;
  if (right->next != nullptr) right->next->prev = block;
  DeleteBlock(right);
}

void Heap::Release(Block* block, uint64_t stamp) {
  EBB_DCHECK(!block->free && UncommittedBytes(block) == 0);
  block->stamp = stamp;
  block->run_begin = block->begin;
  block->run_end = block->end;
  block->releasable = ReleasableOfRun(*block->segment, block->begin, block->end);
  MakeFree(block);
}

void Heap::Abandon(Block* block) {
  FindRun(block);
  block->releasable = CountReleasable(block);
  MakeFree(block);
}

// Merges and indexes a block whose run and releasable granules are set.
void Heap::MakeFree(Block* block) {
  block->free = true;
  if (block->next != nullptr && block->next->free) {
    Unindex(block->next);
    MergeNext(block);
  }
  if (block->prev != nullptr && block->prev->free) {
    block = block->prev;
    Unindex(block);
    MergeNext(block);
  }
  if (MayDrop(block)) {
    DropSegment(block);
  } else {
    Index(block);
  }
}

}  // namespace ebbtide
