// SPDX-License-Identifier: Apache-2.0
//
// HistoryRing remembers the last N things that happened to an allocator, cheaply enough to stay on
// in production: writing an event takes no lock and makes no system call, and one that is not
// wanted costs one relaxed load. It may be read while it is written to.
//
// Order: events have the order in which their writers drew a number. Writers that hold a common
// lock, as those that speak of one block do, keep their order exactly.
//
// Threads: every function may be called from any thread at any time. A writer never waits for
// another: in the rare case that it comes round to a slot in which a writer was interrupted a whole
// round earlier, its own event is left out. Safe after fork in the child. Ownership: the ring owns
// its slots (about 48 bytes for each event), which are obtained by the constructor.

#ifndef EBBTIDE_ALLOCATOR_HISTORY_RING_H_
#define EBBTIDE_ALLOCATOR_HISTORY_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/snapshot.h"

namespace ebbtide {

class HistoryRing {
 public:
  // A set of actions, a bit for each.
  using Actions = uint32_t;
  static constexpr Actions kNone = 0;
  static constexpr Actions kAll = (Actions{1} << kHistoryActions) - 1;
  static constexpr Actions Only(HistoryAction action) {
    return Actions{1} << static_cast<int>(action);
  }

  // Keeps the last `capacity` events, at least 1. Records nothing until Record is told what.
  explicit HistoryRing(int64_t capacity);
  HistoryRing(const HistoryRing&) = delete;
  HistoryRing& operator=(const HistoryRing&) = delete;

  // From now on writes events of these actions and no others. kNone switches the ring off; what it
  // remembers stays.
  void Record(Actions actions) { recorded_.store(actions, std::memory_order_relaxed); }
  Actions recorded() const { return recorded_.load(std::memory_order_relaxed); }

  // Remembers an event of this moment, if its action is wanted. `device` is below 2^24; `size` and
  // `address` mean what HistoryEvent says.
  void Add(HistoryAction action, uint64_t address, Bytes size, StreamId stream, int device = 0) {
    if ((recorded_.load(std::memory_order_relaxed) & Only(action)) != 0) {
      Write(action, address, size, stream, device);
    }
  }

  // The remembered events, oldest first, at most capacity(). Events that are being written at this
  // moment are missing. The time of an event is exact to a few microseconds.
  std::vector<HistoryEvent> Read() const;

  // Forgets what was written until now.
  void Clear() { first_.store(next_.load(std::memory_order_acquire), std::memory_order_release); }

  int64_t capacity() const { return static_cast<int64_t>(capacity_); }

 private:
  // The fields are atomics because a reader may look while a writer writes; the sequence number
  // tells it afterwards whether what it saw belongs together.
  struct Slot {
    std::atomic<uint64_t> sequence{0};  // 0 empty, 2n+1 event n is being written, 2n+2 it is there
    std::atomic<uint64_t> ticks{0};
    std::atomic<uint64_t> address{0};
    std::atomic<uint64_t> size{0};
    std::atomic<uint64_t> stream{0};
    std::atomic<uint32_t> device_and_action{0};  // device << 8 | action
  };

  // The same moment on two clocks.
  struct ClockPair {
    uint64_t ticks = 0;
    int64_t monotonic_ns = 0;
  };

  static ClockPair ReadClocks();
  void Write(HistoryAction action, uint64_t address, Bytes size, StreamId stream, int device);
  bool ReadSlot(uint64_t number, HistoryEvent* event, uint64_t* ticks) const;

  const uint64_t capacity_;
  const uint64_t mask_;  // the number of slots, a power of two, less one
  const ClockPair start_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> first_{0};  // events before it were cleared
  std::atomic<Actions> recorded_{kNone};
  alignas(64) std::atomic<uint64_t> next_{0};
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HISTORY_RING_H_
