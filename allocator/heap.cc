// SPDX-License-Identifier: Apache-2.0

#include "allocator/heap.h"

#include <algorithm>
#include <utility>

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

uintptr_t AlignUp(uintptr_t address, size_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

uintptr_t AlignDown(uintptr_t address, size_t alignment) { return address & ~(alignment - 1); }

}  // namespace

Heap::Heap(HeapLedger* ledger)
    : ledger_(ledger),
      granule_(ledger->device->granularity().count()),
      shift_(__builtin_ctzll(granule_)),
      unit_(ledger->device->preferred_unit().count()),
      partial_(ledger->device->supports_partial_decommit()) {}

Heap::~Heap() {
  for (const auto& segment : segments_) {
    const absl::Status status = ledger_->device->Unreserve(
        reinterpret_cast<void*>(segment->begin), Bytes(static_cast<int64_t>(segment->size)));
    EBB_DCHECK(status.ok()) << status.ToString();
  }
}

size_t Heap::WholeGranules(uintptr_t begin, uintptr_t end) const {
  const uintptr_t first = GranuleUp(begin);
  const uintptr_t last = GranuleDown(end);
  return first < last ? last - first : 0;
}

size_t Heap::CountWhole(const Block* block) const {
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t first = GranuleUp(block->begin);
  const uintptr_t last = GranuleDown(block->end);
  return first < last ? block->segment->map.Count(first - base, last - base) : 0;
}

bool Heap::SpansSegment(const Block* block) const {
  return block->prev == nullptr && block->next == nullptr;
}

Block* Heap::NewBlock(Segment* segment, uintptr_t begin, uintptr_t end) {
  Block* block = spare_;
  if (block != nullptr) {
    spare_ = block->next;
    *block = Block();
  } else {
    block = &storage_.emplace_back();
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
Block* Heap::FindPlace(size_t size, size_t alignment, uintptr_t* place) const {
  const auto fits = [&](uintptr_t begin, uintptr_t end) {
    return AlignUp(begin, alignment) + size <= end;
  };
  const size_t padded = size + alignment - kAlignment;
  Block* block = by_run_.Find(size);
  if (block != nullptr && !fits(block->run_begin, block->run_end)) block = by_run_.Find(padded);
  if (block != nullptr) {
    const bool at_end = block->run_end == block->end && block->run_begin != block->begin;
    *place =
        at_end ? AlignDown(block->run_end - size, alignment) : AlignUp(block->run_begin, alignment);
    return block;
  }
  block = by_run_.AlmostLargest();
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
  if (whole) {  // everything was committed: plain arithmetic
    if (left != nullptr) left->releasable = WholeGranules(left->begin, left->end);
    if (right != nullptr) right->releasable = WholeGranules(right->begin, right->end);
    return;
  }
  if (left != nullptr && right != nullptr && right->size() < left->size()) std::swap(left, right);
  if (left != nullptr && right != nullptr) left->releasable = CountWhole(left);
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
    middle = block->committed ? last - first
                              : block->segment->map.Count(first - base, last - base);
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

Block* Heap::Carve(size_t size, size_t alignment) {
  uintptr_t place = 0;
  Block* block = FindPlace(size, alignment, &place);
  if (block == nullptr) return nullptr;
  EBB_DCHECK(place >= block->begin && place + size <= block->end);
  Unindex(block);
  Split(block, place, place + size);
  return block;
}

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
  EBB_ASSIGN_OR_RETURN(void* const address,
                       ledger_->device->Reserve(Bytes(static_cast<int64_t>(size))));
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto segment = std::make_unique<Segment>(begin, size, size >> shift_, !partial_);
  segment->place = segments_.size();
  Block* block = NewBlock(segment.get(), begin, begin + size);
  segment->first = block;
  block->free = true;
  block->run_begin = block->run_end = begin;
  if (!partial_) {
    block->run_end = begin + size;
    block->releasable = size >> shift_;
    ledger_->Grow(size);
    ++ledger_->device_commits;
  }
  segments_.push_back(std::move(segment));
  reserved_ += size;
  ledger_->reserved += size;
  Index(block);
  return absl::OkStatus();
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
  neighbour->releasable += WholeGranules(std::max(begin, neighbour->begin), end);
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

// Commits what is not committed of granules [first, last), which touch `block` and its free
// neighbours only. Each run is accounted for at once, so that an error leaves nothing out.
absl::Status Heap::CommitGranules(Block* block, uintptr_t first, uintptr_t last) {
  GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  const uintptr_t limit = last - base;
  for (uintptr_t at = map.FindNext(first - base, limit, false); at < limit;
       at = map.FindNext(at, limit, false)) {
    const uintptr_t stop = map.FindNext(at, limit, true);
    const uintptr_t begin = (at + base) << shift_;
    const int64_t bytes = static_cast<int64_t>(stop - at) << shift_;
    EBB_CHECK(ledger_->held + bytes <= ledger_->budget) << "commit over the budget";
    EBB_RETURN_IF_ERROR(ledger_->device->Commit(reinterpret_cast<void*>(begin), Bytes(bytes)));
    ++ledger_->device_commits;
    ledger_->Grow(bytes);
    map.Set(at, stop, true);
    NoteCommitted(block->prev, begin, begin + bytes);
    NoteCommitted(block->next, begin, begin + bytes);
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
  const int64_t room = ledger_->budget - ledger_->held;
  const bool wide = static_cast<int64_t>(missing << shift_) <= room &&
                    CommitGranules(block, wide_first, wide_last).ok();
  if (!wide) EBB_RETURN_IF_ERROR(CommitGranules(block, first, last));
  block->committed = true;
  return absl::OkStatus();
}

// Merges the free block `block` with its free successor; neither is in an index.
void Heap::MergeNext(Block* block) {
  Block* right = block->next;
  const uintptr_t border = right->begin;
  block->releasable += right->releasable;
  const uintptr_t granule = GranuleDown(border);
  const uintptr_t begin = granule << shift_;
  if (begin != border && begin >= block->begin && begin + granule_ <= right->end &&
      block->segment->map.Get(granule - GranuleDown(block->segment->begin))) {
    ++block->releasable;
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

void Heap::Release(Block* block) {
  EBB_DCHECK(!block->free && UncommittedBytes(block) == 0);
  block->run_begin = block->begin;
  block->run_end = block->end;
  block->releasable = WholeGranules(block->begin, block->end);
  MakeFree(block);
}

void Heap::Abandon(Block* block) {
  FindRun(block);
  block->releasable = CountWhole(block);
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
  if (block->releasable == 0 && SpansSegment(block)) {
    DropSegment(block);
  } else {
    Index(block);
  }
}

// Unreserves the segment that the free block `block`, in no index, fills. Returns the bytes that
// held falls by, or -1 when the device refused.
int64_t Heap::DropSegment(Block* block) {
  Segment* segment = block->segment;
  const absl::Status status = ledger_->device->Unreserve(
      reinterpret_cast<void*>(segment->begin), Bytes(static_cast<int64_t>(segment->size)));
  if (!status.ok()) {
    Index(block);
    return -1;
  }
  const int64_t freed = static_cast<int64_t>(block->releasable) << shift_;
  if (freed > 0) ++ledger_->device_decommits;
  ledger_->held -= freed;
  ledger_->reserved -= segment->size;
  reserved_ -= segment->size;
  DeleteBlock(block);
  const size_t place = segment->place;
  std::swap(segments_[place], segments_.back());
  segments_[place]->place = place;
  segments_.pop_back();
  return freed;
}

// Gives up to `wanted` bytes (rounded up to the preferred unit) of one run inside `block` back; the
// block is in no index before and after. Returns the bytes, or -1 when the device refused.
int64_t Heap::GiveBackPart(Block* block, int64_t wanted) {
  GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  if (WholeGranules(block->run_begin, block->run_end) == 0) {
    const uintptr_t limit = GranuleDown(block->end) - base;
    const uintptr_t at = map.FindNext(GranuleUp(block->begin) - base, limit, true);
    block->run_begin = (at + base) << shift_;
    block->run_end = (map.FindNext(at, limit, false) + base) << shift_;
  }
  const uintptr_t run_begin = GranuleUp(block->run_begin) << shift_;
  const uintptr_t end = GranuleDown(block->run_end) << shift_;
  // From the end, where a growing run of blocks comes last; a whole unit keeps huge pages whole.
  uintptr_t begin = run_begin;
  if (end - run_begin > static_cast<uintptr_t>(wanted)) {
    begin = std::max(run_begin, AlignDown(end - wanted, unit_));
  }
  const int64_t bytes = end - begin;
  if (!ledger_->device->Decommit(reinterpret_cast<void*>(begin), Bytes(bytes)).ok()) return -1;
  ++ledger_->device_decommits;
  ledger_->held -= bytes;
  map.Set(GranuleDown(begin) - base, GranuleDown(end) - base, false);
  block->releasable -= bytes >> shift_;
  if (block->run_end - end > begin - block->run_begin) {
    block->run_begin = end;
  } else {
    block->run_end = begin;
  }
  return bytes;
}

int64_t Heap::GiveBack(int64_t wanted) {
  int64_t total = 0;
  while (total < wanted) {
    Block* block = by_releasable_.AlmostLargest();
    if (block == nullptr) break;
    Unindex(block);
    if (!partial_) {
      const int64_t freed = DropSegment(block);
      if (freed < 0) break;
      total += freed;
      continue;
    }
    const int64_t freed = GiveBackPart(block, wanted - total);
    if (freed > 0) total += freed;
    if (freed > 0 && block->releasable == 0 && SpansSegment(block)) {
      DropSegment(block);
    } else {
      Index(block);
    }
    if (freed < 0) break;
  }
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

}  // namespace ebbtide
