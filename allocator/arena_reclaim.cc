// SPDX-License-Identifier: Apache-2.0
//
// How an arena gets memory back: from blocks that other streams have done with, from its small
// caches, and out of its heaps to the device once the device is done with it.

#include <algorithm>
#include <climits>

#include "allocator/arena.h"
#include "base/check.h"

namespace ebbtide {

// The latest stamp that is quiet. Never waits. Asks for a mark where one would tell more.
uint64_t Arena::Quiet() {
  if (streams_ == nullptr) return Heap::kAllQuiet;
  if (marked_ && streams_->IsDone(mark_)) {
    streams_->Release(mark_);
    marked_ = false;
    quiet_ = mark_stamp_;
  }
  if (last_freed_ <= quiet_ || marked_ || stream_gone_) return quiet_;
  const absl::StatusOr<StreamOrder::Event> mark = streams_->Record(stream());
  if (!mark.ok()) {
    // While a stream is captured nothing can be said; once it is gone only the whole device tells.
    stream_gone_ = !absl::IsFailedPrecondition(mark.status());
    return quiet_;
  }
  mark_ = *mark;
  marked_ = true;
  mark_stamp_ = stamp_++;
  if (!streams_->IsDone(mark_)) return quiet_;
  streams_->Release(mark_);
  marked_ = false;
  quiet_ = mark_stamp_;
  return quiet_;
}

void Arena::WaitUntilQuiet() {
  // Twice: the mark that is under way may be older than the latest free.
  for (int i = 0; i < 2 && Quiet() < last_freed_; ++i) {
    if (marked_) {
      streams_->Wait(mark_);
    } else if (stream_gone_) {
      streams_->WaitForAll();
      quiet_ = stamp_++;
    }
  }
}

bool Arena::TryServe(StreamId stream) {
  if (streams_ == nullptr) return false;
  Lock lock(mutex_);
  if (!IsEmptyLocked()) return false;
  const absl::StatusOr<StreamOrder::Event> probe = streams_->Record(this->stream());
  if (probe.ok()) streams_->Release(*probe);
  if (!absl::IsNotFound(probe.status())) return false;
  stream_gone_ = true;
  WaitUntilQuiet();
  if (Quiet() < last_freed_) return false;
  stream_gone_ = false;
  stream_id.store(stream, std::memory_order_relaxed);
  return true;
}

bool Arena::Settle(bool wait) {
  Lock lock(mutex_);
  return SettleLocked(wait);
}

bool Arena::SettleLocked(bool wait, int64_t* given_back) {
  std::vector<uintptr_t> done;
  awaiting_.Poll(wait, &done);
  const int64_t before = awaiting_.bytes();
  for (uintptr_t address : done) {
    ReleaseAwaited(address);
    const int64_t bytes = EnforceBudget();
    if (given_back != nullptr) *given_back += bytes;
  }
  EBB_DCHECK(awaiting_.bytes() == before);
  return !done.empty();
}

void Arena::EndHold(uintptr_t address) {
  Lock lock(mutex_);
  if (!awaiting_.EndHold(address)) return;
  ReleaseAwaited(address);
  EnforceBudget();
}

void Arena::ReleaseAwaited(uintptr_t address) {
  const uintptr_t word = pages_->Get(address);
  if (SmallCache::Slab* slab = SmallCache::SlabOf(word)) {
    const auto bytes = static_cast<int64_t>(SmallCache::ObjectSize(slab));
    const Kind kind = SmallCache::KindOf(slab);
    MeterOf(kind).awaiting().Subtract(bytes);
    NoteCached(kind);
    ledger_->awaiting.Subtract(bytes);
    ledger_->Remember(HistoryAction::kFreeCompleted, address,
                      static_cast<int64_t>(SmallCache::AskedSize(slab, address)), stream());
    std::vector<Block*> chunks;
    small_.ReturnObjects(&address, 1, &chunks);
    ReleaseChunks(chunks);
  } else {
    auto* block = reinterpret_cast<Block*>(word);
    const auto bytes = static_cast<int64_t>(block->size());
    const Kind kind = KindOf(block->heap);
    MeterOf(kind).awaiting().Subtract(bytes);
    NoteCached(kind);
    ledger_->awaiting.Subtract(bytes);
    ledger_->Remember(HistoryAction::kFreeCompleted, address, block->asked, stream());
    ReleaseBlock(block);
  }
}

void Arena::ReleaseChunks(const std::vector<Block*>& chunks) {
  for (Block* chunk : chunks) {
    last_freed_ = stamp_;
    chunk->heap->Release(chunk, stamp_);
  }
}

// Returns true when that freed any memory of the heap.
bool Arena::FlushSmall() {
  std::vector<Block*> chunks;
  small_.Flush(&chunks);
  ReleaseChunks(chunks);
  return !chunks.empty();
}

int64_t Arena::GiveBackQuiet(int64_t wanted, int* calls) {
  if (wanted <= 0) return 0;
  const uint64_t quiet = Quiet();
  int64_t total = 0;
  for (Heap* heap : by_gain_) {
    if (total < wanted) total += heap->GiveBack(wanted - total, quiet, calls);
  }
  return total;
}

int64_t Arena::GiveBack(int64_t wanted, bool wait) {
  if (keeps_cache_.load(std::memory_order_relaxed)) return 0;
  return Trim(wanted, wait, /*small_too=*/false);
}

int64_t Arena::Trim(int64_t wanted, bool wait, bool small_too) {
  Lock lock(mutex_);
  int64_t freed = 0;
  if (streams_ != nullptr) SettleLocked(wait, &freed);
  int calls = INT_MAX;
  freed += GiveBackQuiet(wanted - freed, &calls);
  if (freed < wanted && small_too && FlushSmall()) freed += GiveBackQuiet(wanted - freed, &calls);
  if (freed < wanted && wait && streams_ != nullptr) {
    WaitUntilQuiet();
    freed += GiveBackQuiet(wanted - freed, &calls);
  }
  return freed;
}

int64_t Arena::CountWaitable() const {
  Lock lock(mutex_);
  int64_t bytes = awaiting_.bytes();
  for (const Heap& heap : heaps_) bytes += heap.CountReleasable();
  return bytes;
}

// After the budget was lowered below what was held, each free brings held nearer to it.
// Returns the bytes that went to the device.
int64_t Arena::EnforceBudget() {
  int calls = INT_MAX;
  return ledger_->room() < 0 ? GiveBackQuiet(-ledger_->room(), &calls) : 0;
}

}  // namespace ebbtide
