// SPDX-License-Identifier: Apache-2.0
//
// Ledger is the account of one allocator's memory that all its arenas write to: what the device has
// been asked for, what the program holds of it, and the budget, which no growth can pass.
//
// Thread safety: all functions may be called from any thread; no lock is taken. Ownership: the
// device must outlive the ledger.

#ifndef EBBTIDE_ALLOCATOR_LEDGER_H_
#define EBBTIDE_ALLOCATOR_LEDGER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allocator/device_memory.h"
#include "allocator/history_ring.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"

namespace ebbtide {

// A level, the highest it ever had, and what went in and out.
class Gauge {
 public:
  void Add(int64_t amount) { NotePeak(now_.fetch_add(amount, std::memory_order_relaxed) + amount); }
  void Subtract(int64_t amount) { now_.fetch_sub(amount, std::memory_order_relaxed); }
  int64_t now() const { return now_.load(std::memory_order_relaxed); }
  // At least now(): the two are read one after the other.
  int64_t peak() const { return std::max(peak_.load(std::memory_order_relaxed), now()); }
  void RestartPeak() { peak_.store(now(), std::memory_order_relaxed); }

 private:
  friend class Ledger;

  void NotePeak(int64_t level) {
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (level > peak && !peak_.compare_exchange_weak(peak, level, std::memory_order_relaxed)) {
    }
  }

  std::atomic<int64_t> now_{0};
  std::atomic<int64_t> peak_{0};
};

class Ledger {
 public:
  // `history` may be null.
  Ledger(DeviceMemory* device, Bytes budget, HistoryRing* history)
      : device_(device), history_(history), budget_(budget.count()) {
    device_->BoundRetained([this] { return Bytes(room()); });
  }
  ~Ledger() { device_->BoundRetained(nullptr); }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  DeviceMemory& device() const { return *device_; }

  // Adds `bytes` to held if that stays within the budget; else changes nothing and returns false.
  bool TryGrow(int64_t bytes) {
    int64_t now = held_.now_.load(std::memory_order_relaxed);
    do {
      if (bytes > budget() - now) return false;
    } while (!held_.now_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    held_.NotePeak(now + bytes);
    return true;
  }
  void Shrink(int64_t bytes) { held_.Subtract(bytes); }

  int64_t budget() const { return budget_.load(std::memory_order_relaxed); }
  void set_budget(int64_t budget) {
    budget_.store(budget, std::memory_order_relaxed);
    if (device_->retained().count() > room()) ReleaseRetained();
  }
  // What may still be grown by; negative when the budget was lowered below what is held.
  int64_t room() const { return budget() - held_.now(); }
  const Gauge& held() const { return held_; }
  // What the driver refuses to take it is offered again.
  void ReleaseRetained() { device_->ReleaseRetained().IgnoreError(); }

  // Writes into the history, if there is one.
  void Remember(HistoryAction action, uintptr_t address, int64_t bytes, StreamId stream) {
    if (history_ != nullptr) history_->Add(action, address, Bytes(bytes), stream);
  }

  // Counts of one kind of event.
  using Count = std::atomic<int64_t>;
  static void Note(Count* count) { count->fetch_add(1, std::memory_order_relaxed); }

  void RestartPeaks() {
    held_.RestartPeak();
    live.RestartPeak();
    awaiting.RestartPeak();
  }

  // In blocks that the program has, each as large as SizeOf says. Blocks of the small caches are
  // added and taken off in batches.
  Gauge live;
  // In blocks that were freed while other streams may still use them.
  Gauge awaiting;
  std::atomic<int64_t> reserved{0};  // addresses
  Count commits{0};
  Count decommits{0};
  Count moves{0};
  std::atomic<int64_t> moved_bytes{0};

 private:
  DeviceMemory* const device_;
  HistoryRing* const history_;
  std::atomic<int64_t> budget_;
  Gauge held_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_LEDGER_H_
