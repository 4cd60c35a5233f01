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

Arena::Counts Arena::CountLocked() const {
  const SmallCache::Counts objects = small_.Count();
  Counts counts;
  for (int kind = 0; kind < kKinds; ++kind) {
    Usage& usage = counts.kinds[kind];
    usage = meters_[kind].Read(objects[kind], heaps_[kind].held());
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
  for (int kind = 0; kind < kKinds; ++kind) {
    heaps_[kind].RestartPeak();
    meters_[kind].RestartPeaks(objects[kind], heaps_[kind].held());
  }
}

void Arena::RestartPeaksLocked() {
  RestartMeters();
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const auto level : kLevels) (before_[kind].*level).peak = Bytes(0);
  }
}

}  // namespace ebbtide
