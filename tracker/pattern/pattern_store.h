// SPDX-License-Identifier: Apache-2.0
//
// Iterations that were seen to repeat themselves and may come back: training while an evaluation
// runs, the other length of a sequence. Each is kept as one turn: the signatures of its calls, the
// time between them, and for each access the distance to the next use of what it touched.
//
// A pattern is found again by a hash of the last PeriodFinder::kWindow calls, wherever in its turn
// they end; among several such places, the one that agrees with the recent calls furthest into the
// past. So no hash decides alone.
//
// Memory: bounded by the constructor's argument; the pattern that was followed longest ago goes
// first. Storing is linear in the pattern, finding is O(1) up to kPlacesMax places.
//
// Threads: none, the owner locks. Ownership: owns the patterns. A pointer to one is valid until the
// next Insert. Used by AccessPattern (tracker/pattern/pattern.h) only.

#ifndef EBBTIDE_TRACKER_PATTERN_PATTERN_STORE_H_
#define EBBTIDE_TRACKER_PATTERN_PATTERN_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "allocator/period_finder.h"
#include "base/bytes.h"

namespace ebbtide {

// What was seen to follow one access.
struct UseRecord {
  static constexpr uint32_t kDropped = UINT32_MAX;

  uint32_t calls = 0;     // until the value was read again; 0: not seen; kDropped: never
  float error_nanos = 0;  // smoothed mean of how wrong the time until then was predicted
};

struct StoredPattern {
  std::vector<uint64_t> signatures;    // one turn, of period() calls
  std::vector<int64_t> nanos;          // from call 0 to each call; [period()] is the whole turn
  std::vector<uint32_t> first_record;  // of each call; one more at the end
  std::vector<UseRecord> records;
  int64_t last_followed = 0;  // the number of the call at which it was chosen last

  int64_t period() const { return static_cast<int64_t>(signatures.size()); }
  // The phase `calls` after `phase`; negative ones too.
  int64_t Phase(int64_t phase, int64_t calls) const;
  // From the call at `phase` to the one `calls` >= 0 later, in nanoseconds.
  int64_t NanosAfter(int64_t phase, int64_t calls) const;
  // Of access `place` of the call at `phase`; null if it has no such access.
  const UseRecord* Record(int64_t phase, uint32_t place) const;
  int64_t memory_bytes() const;
};

class PatternStore {
 public:
  // Where in a pattern the sequence is: the last call is the one at `phase`, and as many calls
  // before and with it as `matched` says agree.
  struct Place {
    StoredPattern* pattern = nullptr;
    int64_t phase = 0;
    int64_t matched = 0;
  };
  static constexpr size_t kPlacesMax = 32;        // looked at for one window
  static constexpr int64_t kAgreementMax = 1024;  // calls compared for each of them

  explicit PatternStore(Bytes memory_max) : memory_max_(memory_max) {}

  // The place whose past agrees longest with the last calls of `recent`; no pattern if none agrees
  // in PeriodFinder::kWindow calls.
  Place Find(const PeriodFinder& recent) const;

  // The place of a call that stands alone: a mark, that is. No pattern if there is none.
  Place FindCall(uint64_t signature) const;

  // The pattern whose turn is the `period` calls of `recent` before position `end`, with the phase
  // of the last of these; no pattern if it is not stored.
  Place FindTurn(const PeriodFinder& recent, int64_t end, int64_t period) const;

  // Keeps it, unless it is too large for the store on its own; what was followed longest ago makes
  // room. REQUIRES: FindTurn does not know it.
  void Insert(StoredPattern pattern);
  // Replaces what was learned of a stored pattern. REQUIRES: the same signatures.
  void Refresh(StoredPattern* stored, StoredPattern fresh);

  int64_t size() const { return static_cast<int64_t>(patterns_.size()); }
  int64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Spot {
    StoredPattern* pattern;
    int64_t phase;  // of the window's last call
  };
  using Spots = absl::InlinedVector<Spot, 1>;

  static uint64_t WindowBefore(const StoredPattern& pattern, int64_t phase);
  void Forget(size_t index);

  const Bytes memory_max_;
  int64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<StoredPattern>> patterns_;
  absl::flat_hash_map<uint64_t, Spots> spots_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_PATTERN_PATTERN_STORE_H_
