// SPDX-License-Identifier: Apache-2.0
//
// What the allocator looks like at one moment, with all its arenas locked.

#include <algorithm>
#include <mutex>
#include <vector>

#include "allocator/caching_allocator_impl.h"
#include "base/check.h"

namespace ebbtide {

AllocatorStats CachingAllocator::Impl::Stats() const {
  AllocatorStats stats;
  // Its lock comes before those of the arenas.
  if (checks_ != nullptr) stats.quarantined = checks_->quarantined();
  const AllLocks locks(*this);
  Arena::Counts counts;
  for (const Arena* arena : locks.arenas()) counts += arena->CountLocked();
  stats.budget = Budget();
  stats.held = Bytes(ledger_.held().now());
  stats.live = Bytes(counts.live);
  stats.asked = Bytes(counts.asked);
  stats.rounding = stats.live - stats.asked;
  stats.awaiting = Bytes(counts.awaiting);
  stats.cached = stats.held - stats.live - stats.awaiting;
  stats.reserved = Bytes(ledger_.reserved.load());
  stats.peak_held = Bytes(ledger_.held().peak());
  stats.peak_live = std::max(Bytes(ledger_.live.peak()), stats.live);
  stats.peak_awaiting = Bytes(ledger_.awaiting.peak());
  stats.live_blocks = counts.live_blocks;
  stats.allocations = counts.allocations;
  stats.frees = counts.frees;
  stats.failures = failures_;
  stats.device_commits = ledger_.commits;
  stats.device_decommits = ledger_.decommits;
  stats.device_moves = ledger_.moves;
  stats.pressure_calls = pressure_calls_;
  stats.waits = waits_;
  stats.arenas = static_cast<int64_t>(locks.arenas().size());
  return stats;
}

Snapshot CachingAllocator::Impl::TakeSnapshot() const {
  Snapshot snapshot;
  snapshot.settings = {{"budget", FormatBytes(Budget())}};
  {
    const AllLocks locks(*this);
    for (const Arena* arena : locks.arenas()) {
      arena->small().LockShards();
      arena->AppendPictureLocked(&snapshot.segments);
      arena->small().UnlockShards();
    }
  }
  if (history_ != nullptr) {
    history_->Add(HistoryAction::kSnapshot, 0, Bytes(0), kDefaultStream);
    snapshot.history = history_->Read();
  }
  return snapshot;
}

void CachingAllocator::Impl::CheckInvariants() const {
  CheckBlocks();
  const AllLocks locks(*this);
  int64_t committed = 0;
  for (const Arena* arena : locks.arenas()) committed += arena->CheckLocked();
  EBB_CHECK(committed == ledger_.held().now())
      << committed << " committed, " << ledger_.held().now() << " held";
}

void CachingAllocator::Impl::LockForFork() {
  handler_mutex_.lock();
  if (checks_ != nullptr) checks_->LockForFork();
  arenas_.mutex().lock();
  arenas_.ForEachLocked([](const Arena& arena) {
    arena.mutex().lock();
    arena.small().LockShards();
  });
}

void CachingAllocator::Impl::UnlockAfterFork() {
  arenas_.ForEachLocked([](const Arena& arena) {
    arena.small().UnlockShards();
    arena.mutex().unlock();
  });
  arenas_.mutex().unlock();
  if (checks_ != nullptr) checks_->UnlockAfterFork();
  handler_mutex_.unlock();
}

}  // namespace ebbtide
