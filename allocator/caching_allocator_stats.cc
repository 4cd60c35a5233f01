// SPDX-License-Identifier: Apache-2.0
//
// What the allocator looks like at one moment, with all its arenas locked.

#include <algorithm>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/caching_allocator_impl.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// One entry for each pool, in the order of their numbers.
void MergePools(std::vector<PoolUsage>* pools) {
  std::stable_sort(pools->begin(), pools->end(),
                   [](const PoolUsage& a, const PoolUsage& b) { return a.pool < b.pool; });
  size_t kept = 0;
  for (size_t i = 1; i < pools->size(); ++i) {
    if ((*pools)[i].pool == (*pools)[kept].pool) {
      (*pools)[kept].usage += (*pools)[i].usage;
    } else {
      (*pools)[++kept] = (*pools)[i];
    }
  }
  pools->resize(kept + 1);
}

// No part was ever more than the whole, whose peak is known exactly; and what is there now is.
void LimitPeak(Bytes whole, Level* part) {
  part->peak = std::max(std::min(part->peak, whole), part->current);
}

void LimitPeaks(const AllocatorStats& whole, Usage* part) {
  LimitPeak(whole.peak_live, &part->live);
  LimitPeak(whole.peak_live, &part->asked);
  LimitPeak(whole.peak_awaiting, &part->awaiting);
  LimitPeak(whole.peak_held, &part->cached);
  LimitPeak(whole.peak_held, &part->held);
}

// The shared pool has counted all that no private one has, destroyed ones included. REQUIRES: its
// entry is the first, and has its own arenas' peaks.
void CompleteSharedPool(Usage whole, std::vector<PoolUsage>* pools) {
  for (size_t i = 1; i < pools->size(); ++i) whole -= (*pools)[i].usage;
  Usage& shared = pools->front().usage;
  for (Level Usage::*level :
       {&Usage::live, &Usage::asked, &Usage::awaiting, &Usage::cached, &Usage::held}) {
    (whole.*level).peak = (shared.*level).peak;
  }
  shared = whole;
}

}  // namespace

AllocatorStats CachingAllocator::Impl::Stats() const {
  // Its lock comes before those of the arenas.
  const Bytes quarantined = checks_ == nullptr ? Bytes(0) : checks_->quarantined();
  const AllLocks locks(*this);
  AllocatorStats stats = AddUp(locks);
  stats.quarantined = quarantined;
  return stats;
}

AllocatorStats CachingAllocator::Impl::AddUp(const AllLocks& locks) const {
  AllocatorStats stats;
  stats.budget = Budget();
  stats.held = Bytes(ledger_.held().now());
  for (const Arena* arena : locks.arenas()) {
    const Arena::Counts counts = arena->CountLocked();
    stats.small += counts.kinds[static_cast<int>(Kind::kSmall)];
    stats.large += counts.kinds[static_cast<int>(Kind::kLarge)];
    stats.pools.push_back({arena->pool(), counts.pool});
    stats.planned += counts.planned;
  }
  Usage whole = stats.small;
  whole += stats.large;
  stats.live = whole.live.current;
  stats.asked = whole.asked.current;
  stats.rounding = stats.live - stats.asked;
  stats.awaiting = whole.awaiting.current;
  stats.cached = stats.held - stats.live - stats.awaiting;
  stats.reserved = Bytes(ledger_.reserved.load());
  stats.peak_held = Bytes(ledger_.held().peak());
  stats.peak_live = std::max(Bytes(ledger_.live.peak()), stats.live);
  stats.peak_awaiting = Bytes(ledger_.awaiting.peak());
  stats.live_blocks = whole.live_blocks();
  stats.allocations = whole.allocations;
  stats.frees = whole.frees;
  stats.failures = failures_;
  stats.device_commits = ledger_.commits;
  stats.device_decommits = ledger_.decommits;
  stats.device_moves = ledger_.moves;
  stats.pressure_calls = pressure_calls_;
  stats.waits = waits_;
  stats.arenas = static_cast<int64_t>(locks.arenas().size());
  MergePools(&stats.pools);
  CompleteSharedPool(whole, &stats.pools);
  LimitPeaks(stats, &stats.small);
  LimitPeaks(stats, &stats.large);
  for (PoolUsage& pool : stats.pools) LimitPeaks(stats, &pool.usage);
  return stats;
}

Snapshot CachingAllocator::Impl::TakeSnapshot() const {
  Snapshot snapshot;
  snapshot.settings = {{"budget", FormatBytes(Budget())}};
  {
    const AllLocks locks(*this);
    const AllocatorStats stats = AddUp(locks);
    snapshot.settings.emplace_back("usage of small segments", FormatUsage(stats.small));
    snapshot.settings.emplace_back("usage of large segments", FormatUsage(stats.large));
    for (const PoolUsage& pool : stats.pools) {
      snapshot.settings.emplace_back(absl::StrCat("usage of pool ", pool.pool),
                                     FormatUsage(pool.usage));
    }
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
