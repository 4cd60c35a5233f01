// SPDX-License-Identifier: Apache-2.0
//
// Finds online that a sequence repeats itself, and with which period, without knowing where a
// repetition begins and whatever came before the first:
//
//     finder.Add(x);
//     if (finder.period() > 0) ...  // the last 2 * period() values are something twice
//
// The way of the LZ77 compressors: when a value breaks the period in hand, the places where the
// last few values were seen before are looked up, and the one that agrees longest into the past
// gives the next period to follow, unless one has a period that holds already, of which the
// shortest is followed. How long they agree is found by hashes of prefixes, not value by
// value. A period is known as soon as its second repetition is complete, or, where the end of a
// repetition repeats something shorter, one value later.
//
// O(1) while a period holds; otherwise O(log history) for each of a bounded number of places.
// Memory: 24 bytes a value of history, allocated at once. A hash that collides (1 in 2^61) would
// give a wrong period: check the values if that matters.
//
// Threads: none, the owner locks. Ownership: owns all it holds.

#ifndef EBBTIDE_ALLOCATOR_PERIOD_FINDER_H_
#define EBBTIDE_ALLOCATOR_PERIOD_FINDER_H_

#include <cstdint>
#include <vector>

namespace ebbtide {

class PeriodFinder {
 public:
  // How many values a lookup compares at first; in shorter sequences nothing is found.
  static constexpr int64_t kWindow = 8;

  // Finds periods up to `period_max`, > 0, and remembers the last history() >= 2 * period_max
  // values.
  explicit PeriodFinder(int64_t period_max);

  void Add(int64_t value);

  int64_t count() const { return count_; }  // of the values added
  // The period in hand if it held for the last two repetitions, else 0. Nearly always the shortest.
  int64_t period() const { return matched_ >= candidate_ ? candidate_ : 0; }
  // How many of the last values equal the one followed() before.
  int64_t matched() const { return matched_; }
  // The distance to the earlier place that the sequence seems to run through again, whether or not
  // it has done so for as long as that yet; 0 for none.
  int64_t followed() const { return candidate_; }
  // Follows this distance from now on, > 0 and at most period_max, if the last value agrees: for
  // whoever knows better than a window of values where the sequence begins again. Its return value
  // says whether it does.
  bool Follow(int64_t distance);

  int64_t history() const { return mask_ + 1; }
  // The value at this position, counted from 0. REQUIRES: one of the last history().
  int64_t at(int64_t position) const { return values_[position & mask_]; }

  // A hash of the last kWindow values; 0 if there are fewer. Equal for equal windows anywhere.
  uint64_t window_hash() const { return count_ < kWindow ? 0 : Hash(count_, kWindow); }
  // The same hash for kWindow values of another sequence, from the first on.
  template <typename Values>
  static uint64_t WindowHash(const Values& value_at) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < kWindow; ++i) hash = Append(hash, value_at(i));
    return hash;
  }

 private:
  static uint64_t Append(uint64_t hash, int64_t value);
  uint64_t Hash(int64_t end, int64_t length) const;
  int64_t Agreement(int64_t earlier) const;
  void Lookup();

  const int64_t period_max_, mask_;
  int64_t count_ = 0;
  int64_t candidate_ = 0, matched_ = -1;
  std::vector<int64_t> values_;
  std::vector<uint64_t> prefixes_;  // of each position: the hash of all values before
  std::vector<int64_t> heads_;      // by window hash: where that window ended last
  std::vector<int64_t> earlier_;    // of each position: the one before it with the same head
  std::vector<uint64_t> powers_;    // of the hash's base, to the powers of two
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PERIOD_FINDER_H_
