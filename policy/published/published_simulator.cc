// SPDX-License-Identifier: Apache-2.0

#include "policy/published/published_simulator.h"

#include <utility>

#include "base/check.h"

namespace ebbtide::published {

using Status = Outcome::Status;

Limits LimitsAt(const Baseline& baseline, double ratio) {
  return {static_cast<int64_t>(static_cast<double>(baseline.peak_bytes) * ratio),
          baseline.total_cost};
}

double Outcome::Overhead(const Baseline& baseline) const {
  return static_cast<double>(clock) / static_cast<double>(baseline.total_cost);
}

absl::string_view StatusName(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kOutOfMemory:
      return "OOM";
    case Status::kThrash:
      return "THRASH";
  }
  return "";
}

PublishedSimulator::PublishedSimulator(const Schedule* schedule, Heuristic* heuristic,
                                       Limits limits)
    : schedule_(*schedule), limits_(limits), machine_(schedule, heuristic, limits.budget_bytes) {}

Outcome PublishedSimulator::Run() {
  EBB_CHECK(machine_.clock() == 1) << "a simulation runs once";
  Outcome outcome;
  for (const Step& step : schedule_.steps) {
    outcome.status = Take(step);
    if (outcome.status != Status::kOk) break;
  }
  outcome.clock = machine_.clock();
  outcome.peak_bytes = machine_.peak_bytes();
  outcome.evaluations = machine_.evaluations();
  return outcome;
}

Status PublishedSimulator::Take(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kCompute:
      return Compute(step.id);
    case Step::Kind::kGet:
      machine_.Hold(step.id);
      break;
    case Step::Kind::kRelease:
      machine_.Release(step.id);
      break;
    case Step::Kind::kPin:
      return Pin(step.id);
  }
  return Status::kOk;
}

Status PublishedSimulator::Compute(OpId id) {
  const Op& op = schedule_.ops[id];
  machine_.Link(id);
  const Status status = Materialise(op.first_result, /*is_first=*/true);
  if (status != Status::kOk) return status;
  for (int32_t i = 0; i < op.result_count; ++i) machine_.Touch(op.first_result + i);
  return Status::kOk;
}

// Being pinned is no access: the storage keeps the time of its last one.
Status PublishedSimulator::Pin(TensorId id) {
  if (!machine_.IsDefined(id)) {
    const Status status = Materialise(id, /*is_first=*/false);
    if (status != Status::kOk) return status;
  }
  machine_.Pin(id);
  return Status::kOk;
}

Status PublishedSimulator::Materialise(TensorId wanted, bool is_first) {
  Begin(wanted, is_first);
  while (!stack_.empty()) {
    Frame& frame = stack_.back();
    if (frame.next == frame.missing.size()) {
      const Status status = Complete();
      if (status != Status::kOk) return status;
      continue;
    }
    // An argument can be there by now, as another result of an operator that ran meanwhile.
    const TensorId argument = frame.missing[frame.next];
    if (machine_.IsDefined(argument)) {
      machine_.Lock(argument);
      ++frame.next;
    } else {
      Begin(argument, /*is_first=*/false);
    }
  }
  return Status::kOk;
}

void PublishedSimulator::Begin(TensorId wanted, bool is_first) {
  const Op& op = OpOf(wanted);
  Frame frame{wanted, is_first, {}};
  for (const TensorId argument : op.arguments) machine_.Touch(argument);
  for (const TensorId argument : op.arguments) {
    if (machine_.IsDefined(argument)) {
      machine_.Lock(argument);
    } else {
      frame.missing.push_back(argument);
    }
  }
  stack_.push_back(std::move(frame));
}

Status PublishedSimulator::Complete() {
  const Frame frame = std::move(stack_.back());
  stack_.pop_back();
  const Op& op = OpOf(frame.wanted);
  if (!machine_.MakeRoom(op.result_bytes)) return Status::kOutOfMemory;
  machine_.Run(frame.wanted, frame.is_first);
  for (const TensorId argument : op.arguments) machine_.Unlock(argument);
  return machine_.rebuild_cost() > limits_.rebuild_cost ? Status::kThrash : Status::kOk;
}

}  // namespace ebbtide::published
