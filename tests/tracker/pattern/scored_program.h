// SPDX-License-Identifier: Apache-2.0
//
// Runs a sequence of calls through an AccessPattern, asks after each call when what it touched will
// be used next, and compares each answer with what came.
//
// Threads: none. Ownership: borrows the pattern; owns what it knows of the program's values.

#ifndef EBBTIDE_TESTS_TRACKER_PATTERN_SCORED_PROGRAM_H_
#define EBBTIDE_TESTS_TRACKER_PATTERN_SCORED_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "tests/tracker/pattern/call_file.h"
#include "tracker/pattern/pattern.h"

namespace ebbtide {

// Of the touches whose value was used again or dropped.
struct Score {
  int64_t exact = 0;        // the call of the next use was predicted
  int64_t wrong = 0;        // another one was, the value used or not
  int64_t none_right = 0;   // "none seen", and it was not used again
  int64_t none_wrong = 0;   // "none seen", and it was
  int64_t unknown = 0;      // no answer
  double off_nanos = 0;     // sum over predictions of uses that came: |predicted - actual| time
  double actual_nanos = 0;  // sum over the same: actual time

  int64_t answered() const { return exact + wrong + none_right + none_wrong; }
  // The share of answers that were right, and of touches that were answered.
  double precision() const { return Share(exact + none_right, answered()); }
  double coverage() const { return Share(answered(), answered() + unknown); }
  // Mean error of the time until the next use, as a share of the mean time.
  double time_error() const { return actual_nanos > 0 ? off_nanos / actual_nanos : 0; }
  static double Share(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 1;
  }
  Score operator+(const Score& other) const;
  std::string Text() const;
};

class ScoredProgram {
 public:
  explicit ScoredProgram(AccessPattern* pattern) : pattern_(*pattern) {}

  void Run(const Calls& calls);
  void Run(const RecordedCall& call);
  // An iteration of this kind begins.
  void Mark(uint64_t label);
  // Of the touches since the last time this was called; those that are still open count later,
  // unless ForgetOpen is called.
  Score TakeScore();
  void ForgetOpen();
  // The value that a storage holds.
  const UseTrack& track(int32_t storage) const { return storages_.at(storage)->track; }
  Nanos now() const { return now_; }

 private:
  struct Held {
    UseTrack track;
    bool asked = false;
    Forecast forecast;
    int64_t call = 0;  // when asked
    Nanos time{0};
  };

  void Used(Held* held);
  void Unused(const Held& held);

  AccessPattern& pattern_;
  absl::flat_hash_map<int32_t, std::unique_ptr<Held>> storages_;
  Score score_;
  int64_t call_ = 0;
  Nanos now_{0};
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_TRACKER_PATTERN_SCORED_PROGRAM_H_
