// SPDX-License-Identifier: Apache-2.0
//
// PublishedSimulator: runs a schedule within a budget exactly as the simulator does that was
// published with Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021; uwsampl/dtr-
// prototype, simrd, its runtime with eager eviction). Same victims, same clock, same verdicts: with
// it, curves of other policies can be laid beside the published ones, and it says by its own
// numbers that the two axes mean the same.
//
// What makes it what it is:
//
//   * Eager eviction: a storage whose last hold ends is evicted, not forgotten. It can come back.
//   * A rebuild asks for room for all results of its operator, those in memory included.
//   * Reading an argument counts before anything that the read needs is rebuilt.
//   * At the end everything that the program still holds is brought back and pinned.
//   * When rebuilds have cost more than the limit, the run is given up as thrashing; with the
//     program's own cost as the limit that is a slowdown of 2.
//
// It works on numbers only and uses an explicit stack, so that rebuilds may nest as deep as they
// like. A decision looks at every evictable storage, because the rule of ties, the end of a scan at
// a value of zero and the number of evaluations are all defined by that.
//
// Threads: one at a time; simulations of one schedule can run side by side. Ownership: schedule and
// heuristic are the caller's and must outlive it. Other semantics need another simulator; other
// orders of eviction only another Heuristic.

#ifndef EBBTIDE_POLICY_PUBLISHED_PUBLISHED_SIMULATOR_H_
#define EBBTIDE_POLICY_PUBLISHED_PUBLISHED_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/published/heuristic.h"
#include "policy/published/machine.h"
#include "policy/published/schedule.h"

namespace ebbtide::published {

struct Limits {
  int64_t budget_bytes = 0;
  int64_t rebuild_cost = 0;  // nanoseconds that rebuilds may take together
};

// The limits of a point of a published curve: the baseline's peak times `ratio`, rounded down, and
// its cost.
Limits LimitsAt(const Baseline& baseline, double ratio);

struct Outcome {
  enum class Status {
    kOk,
    kOutOfMemory,  // an operator did not fit beside what is locked and pinned
    kThrash,       // rebuilds cost more than the limit
  };

  Status status = Status::kOk;
  // Where the run ended, also if it failed. The clock starts at 1, so that a run without a rebuild
  // ends at one more than the program's cost.
  int64_t clock = 0;  // nanoseconds
  int64_t peak_bytes = 0;
  int64_t evaluations = 0;  // values that decisions asked for

  // Time of the run over time of the program without a budget.
  double Overhead(const Baseline& baseline) const;
};

// "ok", "OOM" or "THRASH".
absl::string_view StatusName(Outcome::Status status);

class PublishedSimulator {
 public:
  // `heuristic` must be new, and made for the schedule's number of storages.
  PublishedSimulator(const Schedule* schedule, Heuristic* heuristic, Limits limits);

  // Runs the schedule to its end or to failure. REQUIRES: not called before.
  Outcome Run();

 private:
  // A tensor that is being made, and how far that has come.
  struct Frame {
    TensorId wanted;
    bool is_first;
    std::vector<TensorId> missing;  // arguments that were not defined when it began
    size_t next = 0;                // the first of them that is not locked yet
  };

  // Each returns kOk to go on.
  Outcome::Status Take(const Step& step);
  Outcome::Status Compute(OpId id);
  Outcome::Status Pin(TensorId id);
  // Makes a tensor that is not defined, after whatever it needs.
  Outcome::Status Materialise(TensorId wanted, bool is_first);
  // Touches and locks arguments, and pushes the frame.
  void Begin(TensorId wanted, bool is_first);
  // Runs the operator of the top frame, all of whose arguments are locked, and pops it.
  Outcome::Status Complete();

  const Op& OpOf(TensorId id) const { return schedule_.ops[schedule_.tensors[id].op]; }

  const Schedule& schedule_;
  const Limits limits_;
  Machine machine_;
  std::vector<Frame> stack_;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_PUBLISHED_SIMULATOR_H_
