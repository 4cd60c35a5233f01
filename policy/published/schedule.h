// SPDX-License-Identifier: Apache-2.0
//
// Schedule: a recorded program as the published DTR simulator executes it (uwsampl/dtr-prototype,
// simrd): operators over tensors, and the steps between them. Names are resolved, writes in place
// have become operators that make new tensors, and the program ends with one pin for each tensor
// that it still holds.
//
// A tensor is one result of one operator; a storage is the memory that a tensor and its aliases
// share. These are the paper's words; a tensor is about what the rest of Ebbtide calls a value.
//
// Threads: pure functions over data that never changes once it is built, so that many simulations
// can share one schedule. Ownership: results are the caller's. To simulate a program from another
// source, fill a ScheduleBuilder.

#ifndef EBBTIDE_POLICY_PUBLISHED_SCHEDULE_H_
#define EBBTIDE_POLICY_PUBLISHED_SCHEDULE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace ebbtide::published {

// Places in the lists of a Schedule.
using OpId = int32_t;
using TensorId = int32_t;
using StorageId = int32_t;

struct Op {
  int64_t cost = 0;                 // nanoseconds
  std::vector<TensorId> arguments;  // as the program passed them, the same one twice included
  TensorId first_result = 0;        // results are numbered one after the other
  int32_t result_count = 0;         // at least one
  int64_t result_bytes = 0;         // of all results together
};

struct Tensor {
  OpId op = 0;
  StorageId storage = 0;
  bool is_root = true;  // false: an alias, whose memory another tensor made
  int64_t bytes = 0;    // 0 for an alias
};

struct Storage {
  int64_t bytes = 0;
  std::vector<TensorId> tensors;  // the root first, then its aliases in the order they are made
};

struct Step {
  enum class Kind {
    kCompute,  // run an operator for the first time
    kGet,      // the program holds a tensor once more
    kRelease,  // the program holds it once less
    kPin,      // it has to be in memory from here on
  };
  Kind kind;
  int32_t id;  // an OpId for kCompute, else a TensorId
};

struct Schedule {
  std::vector<Op> ops;
  std::vector<Tensor> tensors;
  std::vector<Storage> storages;
  std::vector<Step> steps;
};

// Puts a schedule together, in the order of its steps.
class ScheduleBuilder {
 public:
  struct Result {
    int64_t bytes;  // ignored for an alias, which has no memory of its own
    int32_t alias;  // index into the arguments, or -1
  };

  // Appends an operator, and the step that runs it. Returns its first result. A result that is an
  // alias joins the storage of that argument. REQUIRES: one result at least; arguments that exist;
  // amounts that are not negative.
  TensorId Compute(int64_t cost, std::vector<TensorId> arguments, absl::Span<const Result> results);

  void Get(TensorId tensor) { schedule_.steps.push_back({Step::Kind::kGet, tensor}); }
  void Release(TensorId tensor) { schedule_.steps.push_back({Step::Kind::kRelease, tensor}); }
  void Pin(TensorId tensor) { schedule_.steps.push_back({Step::Kind::kPin, tensor}); }

  // Size of the whole storage that the tensor looks at, in bytes.
  int64_t StorageBytes(TensorId tensor) const {
    return schedule_.storages[schedule_.tensors[tensor].storage].bytes;
  }

  // What has been built so far.
  const Schedule& schedule() const { return schedule_; }
  // Hands the schedule over. REQUIRES: nothing is called after it.
  Schedule Finish() { return std::move(schedule_); }

 private:
  Schedule schedule_;
};

// The run without a budget, which gives the unit of both axes of a published curve.
struct Baseline {
  int64_t peak_bytes = 0;  // the most that is live at once
  int64_t total_cost = 0;  // nanoseconds, of every operator once
};

// Frees each storage when the program's last hold on it ends, parameters included; pins keep
// nothing. The peak is taken after an operator's results have been added and before anything that
// it read is freed.
Baseline MeasureBaseline(const Schedule& schedule);

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_SCHEDULE_H_
