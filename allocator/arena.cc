// SPDX-License-Identifier: Apache-2.0

#include "allocator/arena.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

// What the device said when it gave nothing, for the report: OK when it has no more.
absl::Status FailureOf(absl::Status status) {
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

}  // namespace

Arena::Arena(Ledger* ledger, PageMap* pages, StreamOrder* streams, StreamId stream, Limits limits)
    : HeapOwner(stream),
      ledger_(ledger),
      pages_(pages),
      streams_(streams),
      limits_(limits),
      partial_(ledger->device().supports_partial_decommit()),
      small_(pages, &ledger->live, meters_),
      awaiting_(streams) {
  for (int i = 0; i < 2; ++i) heaps_.emplace_back(ledger, static_cast<HeapOwner*>(this));
  by_gain_ = {&heaps_[1], &heaps_[0]};
}

Arena::~Arena() {
  if (marked_) streams_->Release(mark_);
}

void* Arena::Allocate(size_t size, size_t alignment, Heap::End end, int64_t asked,
                      Shortage* shortage) {
  if (planned_ != nullptr) return AllocatePlanning(size, alignment, end, asked, shortage);
  Lock lock(mutex_);
  Block* block = FindBlock(size, alignment, end, shortage);
  return block == nullptr ? nullptr : HandOut(block, asked);
}

Block* Arena::FindBlock(size_t size, size_t alignment, Heap::End end, Shortage* shortage) {
  if (awaiting_.blocks() > 0 && !HasCommitted(size)) SettleLocked(false);
  return TryObtain(size, alignment, end, shortage);
}

void* Arena::HandOut(Block* block, int64_t asked) {
  block->asked = asked;
  pages_->Set(block->begin, reinterpret_cast<uintptr_t>(block));
  const auto bytes = static_cast<int64_t>(block->size());
  const Kind kind = KindOf(block->heap);
  MeterOf(kind).AddBlock(bytes, asked);
  NoteCached(kind);
  ledger_->live.Add(bytes);
  return reinterpret_cast<void*>(block->begin);
}

void* Arena::AllocateSmall(int size_class, size_t asked, Shortage* shortage) {
  uintptr_t address = small_.Pop(size_class, asked);
  if (address != 0) return reinterpret_cast<void*>(address);
  Lock lock(mutex_);
  while ((address = small_.TakeFromSlabs(size_class, asked)) == 0) {
    if (awaiting_.blocks() > 0 && SettleLocked(false)) continue;
    Block* chunk =
        TryObtain(SmallCache::kChunkSize, SmallCache::kChunkSize, Heap::End::kLow, shortage);
    if (chunk == nullptr) return nullptr;
    const Kind kind = KindOf(chunk->heap);
    small_.AddChunk(size_class, chunk, kind);
    NoteCached(kind);
  }
  return reinterpret_cast<void*>(address);
}

// The heap of blocks of that size, unless it would grow further than it should while the other one
// has a hole: rather a small block among large ones than memory that nobody uses.
Heap& Arena::PickHeap(size_t size, size_t alignment) {
  Heap& own = heaps_[size < kSmallHeapBelow ? 0 : 1];
  Heap& other = heaps_[size < kSmallHeapBelow ? 1 : 0];
  if (own.HasCommitted(size)) return own;
  if (Allowance(size) >= ledger_->device().granularity().count()) return own;
  if (other.HasCommitted(size)) return other;
  // Who follows a plan soon wants the region's holes.
  const bool use_region = MayUseRegion(alignment) && !planned_->following();
  return use_region && heaps_[2].HasCommitted(size) ? heaps_[2] : own;
}

Block* Arena::TryObtain(size_t size, size_t alignment, Heap::End end, Shortage* shortage) {
  Heap* heap = &PickHeap(size, alignment);
  for (bool flushed = false;; flushed = true) {
    *shortage = Shortage();
    Block* block = partial_ ? TryPartial(heap, size, alignment, end, shortage)
                            : TryWhole(heap, size, alignment, end, shortage);
    if (block == nullptr && MayUseRegion(alignment) && heaps_[2].HasCommitted(size)) {
      block = heaps_[2].Carve(size, alignment, end);
    }
    if (block != nullptr || flushed || !FlushSmall()) return block;
  }
}

Block* Arena::TryPartial(Heap* heap, size_t size, size_t alignment, Heap::End end,
                         Shortage* shortage) {
  Block* block = CarveOrReserve(heap, size, alignment, end, shortage);
  if (block == nullptr) return nullptr;
  if (CommitInBudget(heap, block, shortage)) return block;
  heap->Abandon(block);
  const size_t granule = ledger_->device().granularity().count();
  if (shortage->device_exhausted || alignment >= granule) return nullptr;
  // Now all of the cache has gone, and the place that was best with it may touch one granule more
  // than the size needs. A place that starts with a granule does not.
  Shortage aligned;
  block = CarveOrReserve(heap, size, granule, end, &aligned);
  if (block == nullptr) return nullptr;
  if (CommitInBudget(heap, block, &aligned)) return block;
  heap->Abandon(block);
  if (!aligned.device_exhausted) shortage->bytes = std::min(shortage->bytes, aligned.bytes);
  return nullptr;
}

Block* Arena::CarveOrReserve(Heap* heap, size_t size, size_t alignment, Heap::End end,
                             Shortage* shortage) {
  Block* block = heap->Carve(size, alignment, end);
  if (block != nullptr) return block;
  const size_t padded = size + alignment - Heap::kAlignment;
  if (!heap->AddSegment(padded, false).ok() && !heap->AddSegment(padded, true).ok()) {
    int calls = INT_MAX;
    GiveBackQuiet(INT64_MAX, &calls);  // unreserves empty segments: this is about addresses
    if (const absl::Status status = heap->AddSegment(padded, true); !status.ok()) {
      *shortage = {.bytes = static_cast<int64_t>(size),
                   .device_exhausted = true,
                   .failure = FailureOf(status)};
      return nullptr;
    }
  }
  block = heap->Carve(size, alignment, end);
  EBB_CHECK(block != nullptr) << "a new segment must be large enough";
  return block;
}

// How much held may grow before free memory should rather move, when `size` bytes are about to
// become live.
int64_t Arena::Allowance(size_t size) const {
  const int64_t needed =
      std::max(ledger_->live.peak(), ledger_->live.now() + static_cast<int64_t>(size));
  const double slack = limits_.slack * static_cast<double>(needed) +
                       limits_.loosening * static_cast<double>(ledger_->moved_bytes.load());
  return needed + static_cast<int64_t>(slack) - ledger_->held().now();
}

// Makes `wanted` bytes of the block's missing memory available without growth: moves quiet free
// memory to it, or gives as much back. Returns the bytes.
int64_t Arena::Reuse(Heap* heap, Block* block, int64_t wanted, int calls) {
  if (!ledger_->device().supports_move()) {
    const int64_t freed = GiveBackQuiet(wanted, &calls);
    ledger_->moved_bytes += freed;
    return freed;
  }
  const uint64_t quiet = Quiet();
  int64_t moved = 0;
  for (Heap* source : by_gain_) {
    if (moved < wanted) moved += heap->MoveInto(block, source, wanted - moved, quiet, &calls);
  }
  return moved;
}

bool Arena::CommitInBudget(Heap* heap, Block* block, Shortage* shortage) {
  int64_t missing = heap->UncommittedBytes(block);
  if (missing == 0) return true;
  // The block is out of the free ones, so what is given back is never what it will use.
  const int64_t beyond = std::min(missing, missing - Allowance(block->size()));
  if (beyond > 0) Reuse(heap, block, beyond, limits_.calls_for_slack);
  missing = heap->UncommittedBytes(block);
  if (missing > ledger_->room()) Reuse(heap, block, missing - ledger_->room(), INT_MAX);
  missing = heap->UncommittedBytes(block);
  if (missing > ledger_->room()) {
    shortage->bytes = missing - ledger_->room();
    return false;
  }
  absl::Status status = heap->CommitBlock(block);
  if (status.ok()) return true;
  missing = heap->UncommittedBytes(block);
  if (missing <= ledger_->room() && Reuse(heap, block, missing, INT_MAX) > 0) {
    status = heap->CommitBlock(block);
    if (status.ok()) return true;
  }
  // Another arena may have been quicker: then it is the budget, and worth another try.
  missing = heap->UncommittedBytes(block);
  const int64_t over = missing - ledger_->room();
  *shortage = {.bytes = over > 0 ? over : missing,
               .device_exhausted = over <= 0,
               .failure = FailureOf(std::move(status))};
  return false;
}

Block* Arena::TryWhole(Heap* heap, size_t size, size_t alignment, Heap::End end,
                       Shortage* shortage) {
  Block* block = heap->Carve(size, alignment, end);
  if (block != nullptr) return block;
  const size_t padded = size + alignment - Heap::kAlignment;
  const auto roomy = static_cast<int64_t>(heap->SegmentSize(padded, false));
  if (roomy <= ledger_->room() && heap->AddSegment(padded, false).ok()) {
    return heap->Carve(size, alignment, end);
  }
  if (MayUseRegion(alignment)) {  // the region's holes, plan or not, before anything is given back
    block = heaps_[2].Carve(size, alignment, end);
    if (block != nullptr) return block;
  }
  const auto exact = static_cast<int64_t>(heap->SegmentSize(padded, true));
  int calls = INT_MAX;
  GiveBackQuiet(exact - ledger_->room(), &calls);
  const int64_t over = exact - ledger_->room();
  if (over <= 0) {
    absl::Status status = heap->AddSegment(padded, true);
    if (!status.ok() && GiveBackQuiet(exact, &calls) > 0) status = heap->AddSegment(padded, true);
    if (status.ok()) return heap->Carve(size, alignment, end);
    shortage->device_exhausted = true;
    shortage->failure = FailureOf(std::move(status));
  }
  const int64_t cached = ledger_->held().now() - ledger_->live.now();
  shortage->bytes = over > 0 ? over : exact;
  shortage->needs_contiguous = cached >= static_cast<int64_t>(size);
  return nullptr;
}

void Arena::ReleaseBlock(Block* block) {
  pages_->Set(block->begin, 0);
  if (planned_ != nullptr && block->request >= 0) {
    planned_->Freed(block->request, static_cast<int64_t>(block->size()));
  }
  last_freed_ = stamp_;
  block->heap->Release(block, stamp_);
}

void Arena::RememberFree(uintptr_t address, int64_t asked, bool completed) {
  ledger_->Remember(HistoryAction::kFreeRequested, address, asked, stream());
  if (completed) ledger_->Remember(HistoryAction::kFreeCompleted, address, asked, stream());
}

void Arena::FreeLarge(Block* block, uintptr_t address, int64_t asked, AfterFree after) {
  Lock lock(mutex_);
  EBB_CHECK(IsLiveLocked(block, address)) << "free of " << reinterpret_cast<void*>(address)
                                          << ": freed twice, inside a block, or not allocated here";
  EBB_CHECK(asked < 0 || asked == block->asked)
      << "free of " << reinterpret_cast<void*>(address) << " with size " << asked
      << ", which was allocated with size " << block->asked;
  const auto bytes = static_cast<int64_t>(block->size());
  const Kind kind = KindOf(block->heap);
  MeterOf(kind).RemoveBlock(bytes, block->asked);
  ledger_->live.Subtract(bytes);
  const bool waits = BeginWait(address, bytes, after);
  RememberFree(address, block->asked, !waits);
  if (waits) {
    MeterOf(kind).awaiting().Add(bytes);
    ledger_->awaiting.Add(bytes);
  } else {
    NoteCached(kind);
    ReleaseBlock(block);
    EnforceBudget();
  }
}

// True when the block that is being freed must wait before it is handed out again.
bool Arena::BeginWait(uintptr_t address, int64_t bytes, AfterFree after) {
  if (after == AfterFree::kHold) {
    awaiting_.Hold(address, bytes);
    return true;
  }
  return awaiting_.MayHaveUses() && awaiting_.Free(address, bytes);
}

void Arena::FreeSmall(SmallCache::Slab* slab, uintptr_t address, int64_t asked, AfterFree after) {
  EBB_CHECK(asked < 0 || !SmallCache::IsLive(slab, address) ||
            static_cast<size_t>(asked) == SmallCache::AskedSize(slab, address))
      << "free of " << reinterpret_cast<void*>(address) << " with size " << asked
      << ", which was allocated with size " << SmallCache::AskedSize(slab, address);
  if (after == AfterFree::kHold || awaiting_.MayHaveUses()) {
    Lock lock(mutex_);
    const auto bytes = static_cast<int64_t>(SmallCache::ObjectSize(slab));
    if (BeginWait(address, bytes, after)) {
      RememberFree(address, static_cast<int64_t>(SmallCache::AskedSize(slab, address)), false);
      small_.Retire(slab, address);
      MeterOf(SmallCache::KindOf(slab)).awaiting().Add(bytes);
      ledger_->awaiting.Add(bytes);
      return;
    }
  }
  RememberFree(address, static_cast<int64_t>(SmallCache::AskedSize(slab, address)), true);
  uintptr_t overflow[SmallCache::kMaxBatch];
  const size_t count = small_.Push(slab, address, overflow);
  if (count == 0) return;
  std::vector<Block*> chunks;
  Lock lock(mutex_);
  small_.ReturnObjects(overflow, count, &chunks);
  ReleaseChunks(chunks);
  EnforceBudget();
}

void Arena::AddUse(uintptr_t address, StreamId stream) {
  if (stream == this->stream()) return;
  Lock lock(mutex_);
  awaiting_.AddUse(address, stream);
}

bool Arena::IsLiveLocked(const Block* block, uintptr_t address) const {
  return block->begin == address && !block->free && !awaiting_.Contains(address) &&
         pages_->Get(address) == reinterpret_cast<uintptr_t>(block);
}

bool Arena::IsLive(const Block* block, uintptr_t address) const {
  Lock lock(mutex_);
  return IsLiveLocked(block, address);
}

bool Arena::IsEmptyLocked() const {
  const SmallCache::Counts objects = small_.Count();
  for (int kind = 0; kind < kKinds; ++kind) {
    const Usage usage = meters_[kind].Read(objects[kind], HeldOf(static_cast<Kind>(kind)));
    if (usage.live_blocks() != 0 || usage.awaiting.current != Bytes(0)) return false;
  }
  return true;
}

bool Arena::IsEmpty() const {
  Lock lock(mutex_);
  return IsEmptyLocked();
}

int64_t Arena::CountFrees() const {
  Lock lock(mutex_);
  const SmallCache::Counts objects = small_.Count();
  int64_t frees = 0;
  for (int kind = 0; kind < kKinds; ++kind) frees += meters_[kind].frees() + objects[kind].frees;
  return frees;
}

Bytes Arena::LargestFree() const {
  Lock lock(mutex_);
  size_t largest = 0;
  for (const Heap& heap : heaps_) largest = std::max(largest, heap.largest_free());
  return Bytes(static_cast<int64_t>(largest));
}

int64_t Arena::CheckLocked() const {
  int64_t committed = 0;
  for (const Heap& heap : heaps_) {
    heap.CheckInvariants();
    const int64_t bytes = heap.CountCommitted();
    EBB_CHECK(bytes == heap.held().now())
        << bytes << " committed, " << heap.held().now() << " counted";
    committed += bytes;
  }
  return committed;
}

}  // namespace ebbtide
