// SPDX-License-Identifier: Apache-2.0
//
// AccessPattern: finds, while a program runs, that its sequence of calls repeats itself, and so
// says of each value when it will be used next.
//
//     AccessPattern pattern;
//     pattern.OnCall(signature, {{&a.track, Touch::kRead}, {&b.track, Touch::kMade}}, now);
//     pattern.OnDropped(c.track);
//     const Forecast forecast = pattern.NextUse(a.track);
//     if (forecast.kind == Forecast::kExpected) ... forecast.calls, forecast.time ...
//
// A signature is 64 bits that are equal for calls that are alike: operator, sizes, element types,
// and whatever else tells one part of the program from another (grad mode, say). Nothing else is
// known of a call. Where an iteration begins need not be said; a trainer may, by Mark.
//
// How it works: the last calls are kept in a ring, and at each moment there is a guide, an earlier
// place whose past agrees with the most recent calls, the longer the better. As long as the calls
// go on as they did after that place, what happened to its values is what is predicted. A call that
// differs ends the guide at once; another is looked up by the hash of the last few calls. A turn
// that repeated itself is kept in a store (tracker/pattern/pattern_store.h) when the program turns
// to something else, so that it is known again after any time. docs/pattern.md tells more.
//
// Cost: O(1) for each call and each access while there is a guide. A departure looks at up to 32
// earlier places, and copies a turn that was complete into the store. Memory: never more than
// PatternOptions::memory_max, the ring's half of it at once; none for each iteration. A value's own
// part is a UseTrack, which lies in the value.
//
// Threads: none, the owner locks, and so decides in which order calls of several threads count.
// Ownership: borrows UseTracks only while a function runs. To replace it: OnCall, OnDropped, Mark,
// NextUse and guided() are all that is used.

#ifndef EBBTIDE_TRACKER_PATTERN_PATTERN_H_
#define EBBTIDE_TRACKER_PATTERN_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "allocator/period_finder.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "tracker/pattern/pattern_store.h"

namespace ebbtide {

struct PatternOptions {
  // For ring and store together, at least 64 KiB. In calls, the longest iteration that is found is
  // the power of two between a 640th and a 320th of it: 65,536 by default.
  Bytes memory_max{24 << 20};
};

// What AccessPattern knows of one value: a member of the value, made and destroyed with it.
struct UseTrack {
  int64_t call = -1;      // the number of the last call that touched it; -1: none yet
  int64_t record = 0;     // where in the ring it is written what follows that touch
  uint64_t maker = 0;     // signature of the call that made it, to look up its cost; 0: a source
  Nanos last_use{0};      // the time of that call
  uint32_t place = 0;     // which of the call's accesses
  uint32_t rebuilds = 0;  // how often it was brought back; counted by whoever does so
};

enum class Touch : uint8_t {
  kRead,  // the value was there before; in-place calls read what they overwrite
  kMade,  // the call made it
};

struct Access {
  UseTrack* value;
  Touch touch;
};

// When a value will be read next.
struct Forecast {
  enum Kind : uint8_t {
    kUnknown,   // no pattern holds, or not for as long as the value was untouched: go by staleness
    kNoneSeen,  // a pattern holds, in which the value was not used again
    kExpected,
  };
  Kind kind = kUnknown;
  // For kExpected:
  int64_t calls = 0;  // how many calls from the last one on, >= 1; a mark counts as one
  Nanos time{0};      // from the last call on, > 0: as long as it took before, smoothed
  Nanos error{0};     // how far off such a prediction for this value has been, smoothed mean
};

class AccessPattern {
 public:
  // Iterations of fewer calls are loops inside of something; they are followed, but not stored.
  static constexpr int64_t kStoredPeriodMin = 16;

  struct Stats {
    int64_t calls = 0;       // marks not included
    int64_t departures = 0;  // calls that were not the one that was expected
    int64_t unguided = 0;    // calls after which no pattern was known
  };

  explicit AccessPattern(const PatternOptions& options = {});

  // A call ran, and touched these values in this order, each given once. `now` never goes back.
  // Afterwards the tracks say when their values were used last.
  void OnCall(uint64_t signature, absl::Span<const Access> accesses, Nanos now);

  // The program dropped or overwrote the value: it is not used again. Whoever leaves this out
  // learns of values without another use a whole iteration later.
  void OnDropped(const UseTrack& value);

  // An iteration of the kind `label` begins with the next call, as a trainer says. From its first
  // call on it is predicted by the last iteration of that kind, unless a pattern predicted the mark
  // itself. Up to kLabelsMax kinds are told apart by the ring; any number by the store.
  void Mark(uint64_t label);

  // When `value` will be used next, seen from the last call. O(1).
  Forecast NextUse(const UseTrack& value) const;

  // Whether calls are predicted now; if so, for how many calls that has agreed with the program,
  // and the length of an iteration in calls, which is a guess until as many have agreed. Otherwise
  // 0.
  bool guided() const { return guide_.matched > 0; }
  int64_t agreed_calls() const { return guide_.matched; }
  int64_t period() const { return guide_.period; }

  const Stats& stats() const { return stats_; }
  int64_t stored_patterns() const { return store_.size(); }
  // Of ring and store, in bytes; never above memory_max.
  int64_t memory_bytes() const;

 private:
  static constexpr size_t kLabelsMax = 64;

  struct RingCall {
    int64_t nanos = 0;         // when, on a clock whose steps are smoothed
    int64_t first_record = 0;  // of its accesses
  };
  // The earlier place that the program is running through again: in a stored pattern, or in the
  // ring, `period` calls ago.
  struct Guide {
    const StoredPattern* pattern = nullptr;
    int64_t phase = 0;  // in `pattern`, of the last call
    int64_t period = 0;
    int64_t matched = 0;  // for how many calls it agrees, the last one included
  };
  // What followed a touch when it happened before, and how many calls ago that was in the ring.
  struct Precedent {
    const UseRecord* record = nullptr;
    int64_t lag = 0;

    bool WasUsed() const {
      return record != nullptr && record->calls != 0 && record->calls != UseRecord::kDropped;
    }
  };

  int64_t last() const { return finder_.count() - 1; }
  bool InRing(int64_t call) const { return call >= 0 && call > last() - mask_; }
  void Advance(uint64_t signature);
  bool AdvanceStored(uint64_t signature);
  void ChooseGuide();
  void Tick(Nanos elapsed);
  RingCall& ring(int64_t call) { return calls_[call & mask_]; }
  const RingCall& ring(int64_t call) const { return calls_[call & mask_]; }
  void EndCall() { ring(last() + 1).first_record = records_count_; }
  UseRecord* OwnRecord(const UseTrack& value);
  void Close(const UseTrack& value, Nanos now);
  const UseRecord* RingRecord(int64_t call, uint32_t place) const;
  Precedent FindPrecedent(const UseTrack& value) const;
  int64_t NanosFrom(const Precedent& precedent, int64_t call, int64_t calls) const;
  void KeepTurn(int64_t end, int64_t period);
  StoredPattern Describe(int64_t end, int64_t period, int64_t shift) const;

  PeriodFinder finder_;
  const int64_t mask_;
  std::vector<RingCall> calls_;  // by call, and one that is still to come
  const int64_t records_mask_;
  std::vector<UseRecord> records_;  // by access
  int64_t records_count_ = 0;       // since the start
  Nanos now_{0};                    // the time of the last call
  PatternStore store_;
  PatternStore::Place stored_;  // the place in the store that agrees now, if any
  Guide guide_;
  absl::flat_hash_map<uint64_t, int64_t> marks_;  // by label: the last one, as a call
  Stats stats_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_PATTERN_PATTERN_H_
