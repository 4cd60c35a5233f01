// SPDX-License-Identifier: Apache-2.0
//
// What calls cost, by signature: a smoothed mean that is measured rarely while it holds and at
// every call again once it drifts.
//
//     const bool measure = costs.WantsSample(signature);   // before the call
//     ... run it ...
//     if (measure) costs.Add(signature, elapsed);
//
// Measuring is what is dear, on a GPU above all, where it takes a pair of events. So the first
// samples are taken at once, and then the gap between two doubles up to kGapMax calls. One sample
// that is far off may be a pause of the machine: it is set aside, and the next call is measured.
// If that is far off as well, the cost has changed, and measuring starts anew.
//
// O(1) a call. Memory: 40 bytes for each of `signatures_max`, allocated at once; beyond them the
// signature that was longest not asked for, among the few that share its place, is forgotten.
//
// Threads: none, the owner locks. Ownership: owns all it holds. To replace it: three functions.

#ifndef EBBTIDE_TRACKER_PATTERN_CALL_COSTS_H_
#define EBBTIDE_TRACKER_PATTERN_CALL_COSTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace ebbtide {

class CallCosts {
 public:
  static constexpr int kFirstSamples = 4;  // taken one after the other
  static constexpr uint32_t kGapMax = 64;  // calls from one sample to the next, at most

  // Remembers at least `signatures_max` / 4 signatures, > 0, and at most the next power of two.
  explicit CallCosts(int64_t signatures_max);

  // Whether the call with this signature that is about to run should be measured. To be asked once
  // for each call.
  bool WantsSample(uint64_t signature);

  // The call took this long, >= 0. Weight 1/n for the n-th of the first samples, 1/8 for later
  // ones.
  void Add(uint64_t signature, Nanos cost);

  // The smoothed cost; none if it was never measured or is forgotten.
  std::optional<Nanos> CostOf(uint64_t signature) const;

  int64_t memory_bytes() const { return static_cast<int64_t>(entries_.size() * sizeof(Entry)); }

 private:
  struct Entry {
    uint64_t signature = 0;
    uint64_t last_asked = 0;  // 0: the entry is free
    float mean_nanos = 0;
    float deviation_nanos = 0;  // mean distance from the mean
    uint32_t samples = 0;
    uint32_t gap = 1;      // calls from one sample to the next
    uint32_t wait = 0;     // calls until the next
    bool doubted = false;  // the last sample was far off
  };
  static constexpr size_t kWays = 4;

  const Entry* Find(uint64_t signature) const;
  Entry& FindOrAdd(uint64_t signature);
  size_t SetOf(uint64_t signature) const;

  std::vector<Entry> entries_;  // sets of kWays
  uint64_t asked_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_PATTERN_CALL_COSTS_H_
