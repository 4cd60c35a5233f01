// SPDX-License-Identifier: Apache-2.0

#include "allocator/history_ring.h"

#include <time.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ebbtide {
namespace {

// A clock that is cheaper than the system's where the processor has one. Its rate is measured when
// the ring is read, over all of the ring's life, so that writers need not know it.
uint64_t Ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<uint64_t>(MonotonicNow().count());
#endif
}

// The text of a mistake is worth more than the crash that a negative size would give.
uint64_t Positive(int64_t capacity) {
  EBB_CHECK(capacity >= 1) << "a ring of " << capacity << " events";
  return static_cast<uint64_t>(capacity);
}

int64_t UnixMicros() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

HistoryRing::ClockPair HistoryRing::ReadClocks() {
  const uint64_t before = Ticks();
  const int64_t monotonic_ns = MonotonicNow().count();
  return {.ticks = before + (Ticks() - before) / 2, .monotonic_ns = monotonic_ns};
}

HistoryRing::HistoryRing(int64_t capacity)
    : capacity_(Positive(capacity)),
      mask_(std::bit_ceil(capacity_) - 1),
      start_(ReadClocks()),
      slots_(std::make_unique<Slot[]>(mask_ + 1)) {}

void HistoryRing::Write(HistoryAction action, uint64_t address, Bytes size, StreamId stream,
                        int device) {
  const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[number & mask_];
  uint64_t sequence = slot.sequence.load(std::memory_order_relaxed);
  // An odd number: somebody stopped in the middle of writing. A larger one: we did, a round long.
  if ((sequence & 1) != 0 || sequence > 2 * number) return;
  if (!slot.sequence.compare_exchange_strong(sequence, 2 * number + 1, std::memory_order_relaxed)) {
    return;
  }
  // Release and, in ReadSlot, acquire for each field: whoever sees one of these values also sees
  // the odd number, and so does not trust them.
  slot.ticks.store(Ticks(), std::memory_order_release);
  slot.address.store(address, std::memory_order_release);
  slot.size.store(static_cast<uint64_t>(size.count()), std::memory_order_release);
  slot.stream.store(stream, std::memory_order_release);
  slot.device_and_action.store(static_cast<uint32_t>(device) << 8 | static_cast<uint32_t>(action),
                               std::memory_order_release);
  slot.sequence.store(2 * number + 2, std::memory_order_release);
}

bool HistoryRing::ReadSlot(uint64_t number, HistoryEvent* event, uint64_t* ticks) const {
  const Slot& slot = slots_[number & mask_];
  if (slot.sequence.load(std::memory_order_acquire) != 2 * number + 2) return false;
  *ticks = slot.ticks.load(std::memory_order_acquire);
  event->address = slot.address.load(std::memory_order_acquire);
  event->size = Bytes(static_cast<int64_t>(slot.size.load(std::memory_order_acquire)));
  event->stream = slot.stream.load(std::memory_order_acquire);
  const uint32_t device_and_action = slot.device_and_action.load(std::memory_order_acquire);
  event->device = static_cast<int>(device_and_action >> 8);
  event->action = static_cast<HistoryAction>(device_and_action & 0xff);
  return slot.sequence.load(std::memory_order_relaxed) == 2 * number + 2;
}

std::vector<HistoryEvent> HistoryRing::Read() const {
  // Only the rate comes from the steady clock: the calendar's may be set while the ring lives.
  const ClockPair now = ReadClocks();
  const int64_t now_us = UnixMicros();
  const double us_per_tick = static_cast<double>(now.monotonic_ns - start_.monotonic_ns) / 1000 /
                             static_cast<double>(std::max<uint64_t>(now.ticks - start_.ticks, 1));
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t oldest = end > capacity_ ? end - capacity_ : 0;
  std::vector<HistoryEvent> events;
  for (uint64_t i = std::max(oldest, first_.load(std::memory_order_acquire)); i < end; ++i) {
    HistoryEvent event;
    uint64_t ticks = 0;
    if (!ReadSlot(i, &event, &ticks)) continue;
    const auto age = static_cast<double>(static_cast<int64_t>(now.ticks - ticks));
    event.time_us = now_us - static_cast<int64_t>(age * us_per_tick);
    events.push_back(event);
  }
  return events;
}

}  // namespace ebbtide
