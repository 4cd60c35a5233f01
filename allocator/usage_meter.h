// SPDX-License-Identifier: Apache-2.0
//
// UsageMeter keeps the numbers of one kind of memory in one arena. Blocks of the heap are counted
// under the arena's lock; objects of the small cache come and go without it, and are told in
// batches, for the peaks, and exactly when somebody asks (ObjectCounts).
//
// Thread safety: AddObjects at any time; all else under the owner's lock. Ownership: none.

#ifndef EBBTIDE_ALLOCATOR_USAGE_METER_H_
#define EBBTIDE_ALLOCATOR_USAGE_METER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allocator/usage.h"
#include "base/bytes.h"

namespace ebbtide {

enum class Kind : uint8_t { kSmall, kLarge };
inline constexpr int kKinds = 2;

// What came, what went, and the most there was.
struct Tally {
  int64_t in = 0;
  int64_t out = 0;
  int64_t peak = 0;

  int64_t now() const { return in - out; }
  void Add(int64_t amount) {
    in += amount;
    peak = std::max(peak, now());
  }
  void Subtract(int64_t amount) { out += amount; }
  // Peaks are added up: never less than what there was at one moment.
  Tally& operator+=(const Tally& other) {
    in += other.in;
    out += other.out;
    peak += other.peak;
    return *this;
  }
};

// Objects of a small cache, with their class's size and with the size that was asked for.
struct ObjectCounts {
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  int64_t asked_in = 0;
  int64_t asked_out = 0;
  int64_t allocations = 0;
  int64_t frees = 0;

  ObjectCounts& operator+=(const ObjectCounts& other);
};

class UsageMeter {
 public:
  void AddBlock(int64_t bytes, int64_t asked) {
    live_.Add(bytes);
    asked_.Add(asked);
    ++allocations_;
  }
  // The cached memory grows only after that: NoteCached.
  void RemoveBlock(int64_t bytes, int64_t asked) {
    live_.Subtract(bytes);
    asked_.Subtract(asked);
    ++frees_;
  }
  // A batch of objects that came (or, negative, went).
  void AddObjects(int64_t bytes, int64_t asked) {
    live_.AddObjects(bytes);
    asked_.AddObjects(asked);
  }
  Tally& awaiting() { return awaiting_; }
  int64_t frees() const { return frees_; }  // of blocks

  // Memory became free, or was obtained: the most that was cached may be now. `held` is what the
  // arena holds of this kind.
  void NoteCached(int64_t held) {
    peak_cached_ = std::max(peak_cached_, held - live_.now() - awaiting_.now());
  }

  // All there is to know, with the exact numbers of the objects.
  Usage Read(const ObjectCounts& objects, const Tally& held) const;

  void RestartPeaks(const ObjectCounts& objects, const Tally& held);

 private:
  // A level of blocks and objects. Only its blocks change under the lock.
  class MixedLevel {
   public:
    void Add(int64_t amount) {
      in_ += amount;
      blocks_.store(in_ - out_, std::memory_order_relaxed);
      NotePeak();
    }
    void Subtract(int64_t amount) {
      out_ += amount;
      blocks_.store(in_ - out_, std::memory_order_relaxed);
    }
    void AddObjects(int64_t amount) {
      objects_.fetch_add(amount, std::memory_order_relaxed);
      NotePeak();
    }
    int64_t now() const {
      return blocks_.load(std::memory_order_relaxed) + objects_.load(std::memory_order_relaxed);
    }
    Level Read(int64_t objects_in, int64_t objects_out) const;
    void RestartPeak(int64_t level) { peak_.store(level, std::memory_order_relaxed); }

   private:
    void NotePeak() {
      const int64_t level = now();
      int64_t peak = peak_.load(std::memory_order_relaxed);
      while (level > peak && !peak_.compare_exchange_weak(peak, level, std::memory_order_relaxed)) {
      }
    }

    int64_t in_ = 0;
    int64_t out_ = 0;
    std::atomic<int64_t> blocks_{0};
    std::atomic<int64_t> objects_{0};
    std::atomic<int64_t> peak_{0};
  };

  MixedLevel live_;
  MixedLevel asked_;
  Tally awaiting_;
  int64_t peak_cached_ = 0;
  int64_t allocations_ = 0;
  int64_t frees_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_USAGE_METER_H_
