// SPDX-License-Identifier: Apache-2.0
//
// What an arena has counted, by kind of memory, and for the pool that it serves.

#include <algorithm>

#include "allocator/arena.h"

namespace ebbtide {
namespace {

constexpr Level Usage::*kLevels[] = {&Usage::live, &Usage::asked, &Usage::awaiting, &Usage::cached,
                                     &Usage::held};

void RaisePeaks(const Usage& past, Usage* usage) {
  for (const auto level : kLevels) {
    (usage->*level).peak = std::max((usage->*level).peak, (past.*level).peak);
  }
}

}  // namespace

Tally Arena::HeldOf(Kind kind) const {
  if (kind == Kind::kSmall) return heaps_[0].held();
  Tally held = heaps_[1].held();
  if (planned_ != nullptr) held += heaps_[2].held();
  return held;
}

Arena::Counts Arena::CountLocked() const {
  const SmallCache::Counts objects = small_.Count();
  Counts counts;
  counts.planned = planned_blocks_;
  for (int kind = 0; kind < kKinds; ++kind) {
    Usage& usage = counts.kinds[kind];
    usage = meters_[kind].Read(objects[kind], HeldOf(static_cast<Kind>(kind)));
    counts.pool += usage;
    counts.pool -= before_[kind];
    RaisePeaks(before_[kind], &usage);
  }
  return counts;
}

void Arena::StartPool() {
  Lock lock(mutex_);
  const Counts counts = CountLocked();
  for (int kind = 0; kind < kKinds; ++kind) {
    Usage& before = before_[kind];
    before = counts.kinds[kind];
    before.allocations = before.frees;  // no block is live
    for (const auto level : kLevels) {
      // What is there now came for the pool to come.
      (before.*level).allocated -= (before.*level).current;
      (before.*level).current = Bytes(0);
    }
  }
  RestartMeters();
}

void Arena::RestartMeters() {
  const SmallCache::Counts objects = small_.Count();
  for (Heap& heap : heaps_) heap.RestartPeak();
  for (int kind = 0; kind < kKinds; ++kind) {
    meters_[kind].RestartPeaks(objects[kind], HeldOf(static_cast<Kind>(kind)));
  }
}

void Arena::RestartPeaksLocked() {
  RestartMeters();
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const auto level : kLevels) (before_[kind].*level).peak = Bytes(0);
  }
}

}  // namespace ebbtide
