// SPDX-License-Identifier: Apache-2.0
//
// The part of Heap that speaks to the device: segments are reserved and dropped, memory is put
// behind blocks, given back and moved.

#include <algorithm>
#include <utility>

#include "allocator/heap.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

constexpr size_t kMinReservation = size_t{1} << 30;
constexpr size_t kMaxReservation = size_t{1} << 36;

// Without partial decommit a segment is memory, not only addresses: requests below the first limit
// share segments of kSharedSegment, larger ones get a segment of their own.
constexpr size_t kOwnSegmentFrom = size_t{10} << 20;
constexpr size_t kSharedSegment = size_t{20} << 20;
constexpr size_t kSmallSegmentBelow = size_t{256} << 10;
constexpr size_t kSmallSegment = size_t{2} << 20;

// How many blocks that are not quiet a search passes over before it gives up.
constexpr size_t kMaxNoisy = 16;

uintptr_t AlignUp(uintptr_t address, size_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

uintptr_t AlignDown(uintptr_t address, size_t alignment) { return address & ~(alignment - 1); }

void* Pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

size_t Heap::SegmentSize(size_t bytes, bool exact) const {
  const size_t needed = AlignUp(bytes, unit_);
  if (exact) return AlignUp(bytes, granule_);
  if (partial_) return std::max(needed, std::clamp(reserved_, kMinReservation, kMaxReservation));
  if (bytes < kSmallSegmentBelow) return std::max(needed, AlignUp(kSmallSegment, unit_));
  if (bytes < kOwnSegmentFrom) return std::max(needed, AlignUp(kSharedSegment, unit_));
  return needed;
}

absl::Status Heap::AddSegment(size_t bytes, bool exact) {
  const size_t size = SegmentSize(bytes, exact);
  const auto held = static_cast<int64_t>(partial_ ? 0 : size);
  if (!ledger_->TryGrow(held)) return absl::ResourceExhaustedError("over the budget");
  const absl::StatusOr<void*> address =
      ledger_->device().Reserve(Bytes(static_cast<int64_t>(size)));
  if (!address.ok()) {
    ledger_->Shrink(held);
    return address.status();
  }
  const auto begin = reinterpret_cast<uintptr_t>(*address);
  auto segment = std::make_unique<Segment>(begin, size, size >> shift_, !partial_, in_pieces_);
  segment->place = segments_.size();
  Block* block = NewBlock(segment.get(), begin, begin + size);
  segment->first = block;
  block->free = true;
  block->run_begin = block->run_end = begin;
  if (!partial_) {
    block->run_end = begin + size;
    block->releasable = size >> shift_;
    Ledger::Note(&ledger_->commits);
    held_.Add(held);
    Remember(HistoryAction::kSegmentAlloc, {begin, begin + size});
  }
  segments_.push_back(std::move(segment));
  reserved_ += size;
  ledger_->reserved += static_cast<int64_t>(size);
  Index(block);
  return absl::OkStatus();
}

absl::Status Heap::AddRegion(size_t bytes) {
  EBB_RETURN_IF_ERROR(AddSegment(bytes, /*exact=*/!partial_));
  region_ = segments_.back().get();
  return absl::OkStatus();
}

// Unreserves the segment that the free block `block`, in no index, fills. Returns the bytes that
// held falls by, or -1 when the device refused.
int64_t Heap::DropSegment(Block* block) {
  Segment* segment = block->segment;
  const absl::Status status = ledger_->device().Unreserve(
      Pointer(segment->begin), Bytes(static_cast<int64_t>(segment->size)));
  if (!status.ok()) {
    Index(block);
    return -1;
  }
  const int64_t freed = static_cast<int64_t>(block->releasable) << shift_;
  if (freed > 0) {
    Ledger::Note(&ledger_->decommits);
    Remember(HistoryAction::kSegmentFree, {segment->begin, segment->begin + segment->size});
  }
  ledger_->Shrink(freed);
  held_.Subtract(freed);
  ledger_->reserved -= static_cast<int64_t>(segment->size);
  reserved_ -= segment->size;
  DeleteBlock(block);
  if (segment == region_) region_ = nullptr;
  const size_t place = segment->place;
  std::swap(segments_[place], segments_.back());
  segments_[place]->place = place;
  segments_.pop_back();
  return freed;
}

int64_t Heap::UncommittedBytes(const Block* block) const {
  return block->committed ? 0 : CountUncommitted(block);
}

int64_t Heap::CountUncommitted(const Block* block) const {
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t first = GranuleDown(block->begin);
  const uintptr_t last = GranuleUp(block->end);
  return static_cast<int64_t>(last - first - block->segment->map.Count(first - base, last - base))
         << shift_;
}

// A free neighbour learns that [begin, end) has memory now, of which it did not have.
void Heap::NoteCommitted(Block* neighbour, uintptr_t begin, uintptr_t end) {
  if (neighbour == nullptr || !neighbour->free) return;
  begin = std::max(begin, neighbour->begin);
  end = std::min(end, neighbour->end);
  if (begin >= end) return;
  Unindex(neighbour);
  neighbour->releasable += ReleasableOfRun(*neighbour->segment, begin, end);
  const bool touches = neighbour->run_begin <= end && begin <= neighbour->run_end;
  if (neighbour->run_size() > 0 && touches) {
    neighbour->run_begin = std::min(neighbour->run_begin, begin);
    neighbour->run_end = std::max(neighbour->run_end, end);
  } else if (end - begin > neighbour->run_size()) {
    neighbour->run_begin = begin;
    neighbour->run_end = end;
  }
  Index(neighbour);
}

// Notes memory that `block` and its free neighbours have got, in pieces of `piece` bytes.
void Heap::MarkCommitted(Block* block, Span span, size_t piece) {
  Segment* segment = block->segment;
  const uintptr_t base = GranuleDown(segment->begin);
  segment->map.Set(GranuleDown(span.begin) - base, GranuleDown(span.end) - base, true);
  for (uintptr_t at = span.begin; in_pieces_ && at < span.end; at += piece) {
    segment->starts.Set(GranuleDown(at) - base, GranuleDown(at) - base + 1, true);
  }
  NoteCommitted(block->prev, span.begin, span.end);
  NoteCommitted(block->next, span.begin, span.end);
}

// Commits [begin, end), none of which is committed: what there is of large pieces, then the rest.
// Each part is accounted for at once, so that an error leaves nothing out.
absl::Status Heap::CommitRun(Block* block, uintptr_t begin, uintptr_t end) {
  const size_t in_large = in_pieces_ ? (end - begin) / large_piece_ * large_piece_ : 0;
  const std::pair<Span, size_t> parts[] = {{{begin, begin + in_large}, large_piece_},
                                           {{begin + in_large, end}, granule_}};
  for (const auto& [span, piece] : parts) {
    if (span.bytes() == 0) continue;
    if (!ledger_->TryGrow(span.bytes())) return absl::ResourceExhaustedError("over the budget");
    const absl::Status status = ledger_->device().Commit(Pointer(span.begin), Bytes(span.bytes()),
                                                         Bytes(static_cast<int64_t>(piece)));
    if (!status.ok()) {
      ledger_->Shrink(span.bytes());
      return status;
    }
    Ledger::Note(&ledger_->commits);
    held_.Add(span.bytes());
    Remember(HistoryAction::kSegmentMap, span);
    MarkCommitted(block, span, piece);
  }
  return absl::OkStatus();
}

// Commits what is not committed of granules [first, last), which touch `block` and its free
// neighbours only.
absl::Status Heap::CommitGranules(Block* block, uintptr_t first, uintptr_t last) {
  const GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t limit = last - base;
  for (uintptr_t at = map.FindNext(first - base, limit, false); at < limit;
       at = map.FindNext(at, limit, false)) {
    const uintptr_t stop = map.FindNext(at, limit, true);
    EBB_RETURN_IF_ERROR(CommitRun(block, (at + base) << shift_, (stop + base) << shift_));
    at = stop;
  }
  return absl::OkStatus();
}

absl::Status Heap::CommitBlock(Block* block) {
  const uintptr_t first = GranuleDown(block->begin);
  const uintptr_t last = GranuleUp(block->end);
  if (UncommittedBytes(block) == 0) return absl::OkStatus();
  // A huge page is built only where the whole of it is committed when it is first touched.
  const uintptr_t free_begin =
      block->prev != nullptr && block->prev->free ? block->prev->begin : block->begin;
  const uintptr_t free_end =
      block->next != nullptr && block->next->free ? block->next->end : block->end;
  const uintptr_t wide_first =
      std::min(first, std::max(GranuleUp(free_begin), AlignDown(block->begin, unit_) >> shift_));
  const uintptr_t wide_last =
      std::max(last, std::min(GranuleDown(free_end), AlignUp(block->end, unit_) >> shift_));
  const uintptr_t base = GranuleDown(block->segment->begin);
  const GranuleMap& map = block->segment->map;
  const size_t missing = wide_last - wide_first - map.Count(wide_first - base, wide_last - base);
  const bool wide = static_cast<int64_t>(missing << shift_) <= ledger_->room() &&
                    CommitGranules(block, wide_first, wide_last).ok();
  if (!wide) EBB_RETURN_IF_ERROR(CommitGranules(block, first, last));
  block->committed = true;
  return absl::OkStatus();
}

// A span of whole pieces inside the free block. REQUIRES: there is one, as `releasable` says.
Heap::Span Heap::FindReleasable(Block* block) const {
  const Segment& segment = *block->segment;
  const auto whole = [&](uintptr_t begin, uintptr_t end) {
    const Span span{GranuleUp(begin) << shift_, GranuleDown(end) << shift_};
    return span.begin < span.end ? TrimToPieces(segment, span) : Span();
  };
  Span span = whole(block->run_begin, block->run_end);
  const uintptr_t base = GranuleDown(segment.begin);
  const uintptr_t limit = GranuleDown(block->end) - base;
  for (uintptr_t at = GranuleUp(block->begin) - base; span.bytes() == 0;) {
    at = segment.map.FindNext(at, limit, true);
    EBB_CHECK(at < limit) << "releasable granules that are not there";
    const uintptr_t stop = segment.map.FindNext(at, limit, false);
    span = whole((at + base) << shift_, (stop + base) << shift_);
    at = stop;
  }
  return span;
}

// Up to `wanted` bytes (rounded up to the preferred unit and to pieces) of one run inside `block`.
Heap::Span Heap::PickReleasable(Block* block, int64_t wanted) const {
  Span span = FindReleasable(block);
  if (span.bytes() <= wanted) return span;
  // From the end, where a growing run of blocks comes last; a whole unit keeps huge pages whole.
  span.begin = std::max(span.begin, AlignDown(span.end - wanted, unit_));
  if (!in_pieces_) return span;
  const uintptr_t base = GranuleDown(block->segment->begin);
  span.begin = (block->segment->starts.FindLast(0, GranuleDown(span.begin) - base) + base)
               << shift_;
  return span;
}

// The span, whole pieces of the free block, which is in no index, has no memory any more.
void Heap::MarkGone(Block* block, Span span) {
  Segment* segment = block->segment;
  const uintptr_t base = GranuleDown(segment->begin);
  segment->map.Set(GranuleDown(span.begin) - base, GranuleDown(span.end) - base, false);
  if (in_pieces_) {
    segment->starts.Set(GranuleDown(span.begin) - base, GranuleDown(span.end) - base, false);
  }
  block->releasable -= span.bytes() >> shift_;
  if (span.end <= block->run_begin || block->run_end <= span.begin) return;
  if (block->run_end > span.end && block->run_end - span.end > span.begin - block->run_begin) {
    block->run_begin = span.end;
  } else {
    block->run_end = std::max(block->run_begin, span.begin);
  }
}

// Gives up to `wanted` bytes (rounded up) of the free block, in no index before and after, back.
// Returns the bytes, or -1 when the device refused.
int64_t Heap::GiveBackPart(Block* block, int64_t wanted) {
  const Span span = PickReleasable(block, wanted);
  if (!ledger_->device().Decommit(Pointer(span.begin), Bytes(span.bytes())).ok()) return -1;
  Ledger::Note(&ledger_->decommits);
  ledger_->Shrink(span.bytes());
  held_.Subtract(span.bytes());
  Remember(HistoryAction::kSegmentUnmap, span);
  MarkGone(block, span);
  return span.bytes();
}

// The largest quiet block with something releasable, taken out of all indices. Louder ones on the
// way go to `noisy`: the caller indexes them again when it is done.
Block* Heap::FindQuiet(uint64_t quiet, std::vector<Block*>* noisy) {
  while (Block* block = by_releasable_.Largest()) {
    if (block->stamp <= quiet) {
      Unindex(block);
      return block;
    }
    if (noisy->size() == kMaxNoisy) return nullptr;
    by_releasable_.Remove(block);
    noisy->push_back(block);
  }
  return nullptr;
}

void Heap::Restore(const std::vector<Block*>& noisy) {
  for (Block* block : noisy) {
    // It may have been indexed anew meanwhile.
    if (block->releasable_link.key == 0) {
      by_releasable_.Insert(block, block->releasable << shift_);
    }
  }
}

int64_t Heap::GiveBack(int64_t wanted, uint64_t quiet, int* calls) {
  int64_t total = 0;
  std::vector<Block*> noisy;
  while (*calls > 0 && total < wanted) {
    Block* block = FindQuiet(quiet, &noisy);
    if (block == nullptr) break;
    --*calls;
    if (!partial_) {
      const int64_t freed = DropSegment(block);
      if (freed < 0) break;
      total += freed;
      continue;
    }
    const int64_t freed = GiveBackPart(block, wanted - total);
    if (freed > 0) total += freed;
    if (freed > 0 && MayDrop(block)) {
      DropSegment(block);
    } else {
      Index(block);
    }
    if (freed < 0) break;
  }
  Restore(noisy);
  if (total < wanted && partial_) DropEmptySegments();
  return total;
}

// A segment without memory goes as soon as it is free, but the device may have refused to take it.
void Heap::DropEmptySegments() {
  for (size_t i = segments_.size(); i-- > 0;) {
    Block* block = segments_[i]->first;
    if (!block->free || block->releasable > 0 || !SpansSegment(block)) continue;
    Unindex(block);
    DropSegment(block);
  }
}

int64_t Heap::CountReleasable(uint64_t quiet) const {
  int64_t granules = 0;
  VisitBlocks([&](const Block& block) {
    const bool counts = block.free && block.stamp <= quiet && (partial_ || SpansSegment(&block));
    if (counts) granules += block.releasable;
  });
  return granules << shift_;
}

// Moves memory of `from`, a block of `source` in no index, to the first place where `block` has
// none, at most `wanted` bytes or rounded up. Returns the bytes, 0 when the first piece is too
// large, -1 when the device refused. `from` is in its indices again afterwards.
int64_t Heap::MoveRun(Block* block, Heap* source, Block* from, int64_t wanted) {
  const GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t limit = GranuleUp(block->end) - base;
  const uintptr_t at = map.FindNext(GranuleDown(block->begin) - base, limit, false);
  const uintptr_t stop = map.FindNext(at, limit, true);
  const int64_t most = static_cast<int64_t>(stop - at) << shift_;
  Span span = source->PickReleasable(from, std::min(wanted, most));
  const uintptr_t from_base = GranuleDown(from->segment->begin);
  GranuleMap& starts = from->segment->starts;
  if (span.bytes() > most) {
    span.begin = span.end - most;
    if (in_pieces_) {
      span.begin = (starts.FindNext(GranuleDown(span.begin) - from_base,
                                    GranuleDown(span.end) - from_base, true) +
                    from_base)
                   << shift_;
    }
  }
  const uintptr_t to = (at + base) << shift_;
  const bool moved =
      span.bytes() > 0 &&
      ledger_->device().Move(Pointer(span.begin), Pointer(to), Bytes(span.bytes())).ok();
  if (!moved) {
    source->Index(from);
    return span.bytes() > 0 ? -1 : 0;
  }
  Ledger::Note(&ledger_->moves);
  ledger_->moved_bytes += span.bytes();
  source->held_.Subtract(span.bytes());
  held_.Add(span.bytes());
  source->Remember(HistoryAction::kSegmentUnmap, span);
  Remember(HistoryAction::kSegmentMap, {to, to + span.bytes()});
  for (uintptr_t i = 0; in_pieces_ && i < static_cast<uintptr_t>(span.bytes()) >> shift_; ++i) {
    if (!starts.Get(GranuleDown(span.begin) - from_base + i)) continue;
    block->segment->starts.Set(at + i, at + i + 1, true);
  }
  source->MarkGone(from, span);
  if (source->MayDrop(from)) {
    source->DropSegment(from);
  } else {
    source->Index(from);
  }
  block->segment->map.Set(at, at + (span.bytes() >> shift_), true);
  NoteCommitted(block->prev, to, to + span.bytes());
  NoteCommitted(block->next, to, to + span.bytes());
  return span.bytes();
}

int64_t Heap::MoveInto(Block* block, Heap* source, int64_t wanted, uint64_t quiet, int* calls) {
  int64_t total = 0;
  std::vector<Block*> noisy;
  while (total<wanted&& * calls> 0 && CountUncommitted(block) > 0) {
    Block* from = source->FindQuiet(quiet, &noisy);
    if (from == nullptr) break;
    --*calls;
    int64_t moved = MoveRun(block, source, from, wanted - total);
    if (moved < 0) break;
    if (moved == 0) {  // a piece that is larger than what is missing: as much leaves held
      source->Unindex(from);
      moved = source->GiveBackPart(from, wanted - total);
      source->Index(from);
      if (moved < 0) break;
    }
    total += moved;
  }
  source->Restore(noisy);
  return total;
}

}  // namespace ebbtide
