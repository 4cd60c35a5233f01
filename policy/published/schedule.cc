// SPDX-License-Identifier: Apache-2.0

#include "policy/published/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace ebbtide::published {

TensorId ScheduleBuilder::Compute(int64_t cost, std::vector<TensorId> arguments,
                                  absl::Span<const Result> results) {
  EBB_CHECK(!results.empty()) << "an operator without results";
  const auto op_id = static_cast<OpId>(schedule_.ops.size());
  Op op;
  op.cost = cost;
  op.first_result = static_cast<TensorId>(schedule_.tensors.size());
  op.result_count = static_cast<int32_t>(results.size());
  for (const Result& result : results) {
    const auto tensor_id = static_cast<TensorId>(schedule_.tensors.size());
    Tensor tensor;
    tensor.op = op_id;
    if (result.alias >= 0) {
      tensor.is_root = false;
      tensor.storage = schedule_.tensors[arguments[result.alias]].storage;
    } else {
      tensor.bytes = result.bytes;
      tensor.storage = static_cast<StorageId>(schedule_.storages.size());
      schedule_.storages.emplace_back().bytes = result.bytes;
      op.result_bytes += result.bytes;
    }
    schedule_.storages[tensor.storage].tensors.push_back(tensor_id);
    schedule_.tensors.push_back(tensor);
  }
  op.arguments = std::move(arguments);
  const TensorId first_result = op.first_result;
  schedule_.ops.push_back(std::move(op));
  schedule_.steps.push_back({Step::Kind::kCompute, op_id});
  return first_result;
}

Baseline MeasureBaseline(const Schedule& schedule) {
  Baseline baseline;
  int64_t live = 0;
  std::vector<int64_t> holds(schedule.storages.size(), 0);
  std::vector<bool> is_freed(schedule.storages.size(), false);
  for (const Step& step : schedule.steps) {
    switch (step.kind) {
      case Step::Kind::kCompute: {
        const Op& op = schedule.ops[step.id];
        for (int32_t i = 0; i < op.result_count; ++i) {
          ++holds[schedule.tensors[op.first_result + i].storage];
        }
        baseline.total_cost += op.cost;
        live += op.result_bytes;
        baseline.peak_bytes = std::max(baseline.peak_bytes, live);
        break;
      }
      case Step::Kind::kGet:
        ++holds[schedule.tensors[step.id].storage];
        break;
      case Step::Kind::kRelease: {
        const StorageId storage = schedule.tensors[step.id].storage;
        // What is gone may be named once more later; that is no second block to free.
        if (--holds[storage] == 0 && !is_freed[storage]) {
          is_freed[storage] = true;
          live -= schedule.storages[storage].bytes;
        }
        break;
      }
      case Step::Kind::kPin:
        break;
    }
  }
  return baseline;
}

}  // namespace ebbtide::published
