// SPDX-License-Identifier: Apache-2.0
//
// VirtualClock is the time of a simulated machine: it moves only when somebody says that time has
// passed. So a bench reports what driver calls would have cost without waiting for them, and a test
// decides what is done when.
//
// Safe on any thread, without a lock. Ownership: SimulatedDevice owns one, and whoever shares its
// time keeps a pointer to it. There is nothing to replace: it is a number that grows.

#ifndef EBBTIDE_ALLOCATOR_VIRTUAL_CLOCK_H_
#define EBBTIDE_ALLOCATOR_VIRTUAL_CLOCK_H_

#include <atomic>

#include "base/clock.h"

namespace ebbtide {

class VirtualClock {
 public:
  // Time since the machine was made.
  Nanos now() const { return Nanos(now_.load(std::memory_order_relaxed)); }

  // `duration` passes. REQUIRES: it is not negative.
  void Advance(Nanos duration) { now_.fetch_add(duration.count(), std::memory_order_relaxed); }

  // Moves to `time`, unless it is over already.
  void AdvanceTo(Nanos time) {
    Nanos::rep seen = now_.load(std::memory_order_relaxed);
    while (seen < time.count() &&
           !now_.compare_exchange_weak(seen, time.count(), std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<Nanos::rep> now_{0};
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_VIRTUAL_CLOCK_H_
