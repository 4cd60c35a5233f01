// SPDX-License-Identifier: Apache-2.0

#include "policy/published/read_schedule.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ebbtide::published {
namespace {

constexpr int64_t kTotalCostMax = int64_t{1} << 48;
constexpr int64_t kTotalBytesMax = int64_t{1} << 60;
constexpr size_t kTensorsMax = size_t{1} << 30;

using Kind = DtrInstruction::Kind;

// Follows which name is bound to which tensor, and how often each tensor is held.
class Reader {
 public:
  absl::Status Add(const DtrInstruction& instruction) {
    switch (instruction.kind) {
      case Kind::kConstant:
        return Constant(instruction);
      case Kind::kCall:
        return Call(instruction);
      case Kind::kMutate:
        return Mutate(instruction);
      case Kind::kCopy:
      case Kind::kCopyFrom:
        return Copy(instruction);
      case Kind::kRelease:
        Release(instruction.name);
        return absl::OkStatus();
      case Kind::kAnnotate:
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Several names of one tensor give several pins; the first one decides where it stands.
  Schedule Finish() {
    for (const TensorId tensor : bindings_) {
      if (holds_[tensor] > 0) builder_.Pin(tensor);
    }
    return builder_.Finish();
  }

 private:
  absl::StatusOr<TensorId> Find(const std::string& name) const {
    const auto it = names_.find(name);
    if (it == names_.end()) return absl::InvalidArgumentError(absl::StrCat(name, " is no tensor"));
    return bindings_[it->second];
  }

  // Binds a name. One that is bound already keeps its place in the order.
  void Bind(const std::string& name, TensorId tensor) {
    const auto [it, is_new] = names_.try_emplace(name, bindings_.size());
    if (is_new) {
      bindings_.push_back(tensor);
    } else {
      bindings_[it->second] = tensor;
    }
  }

  absl::StatusOr<std::vector<TensorId>> Arguments(const DtrInstruction& from) const {
    std::vector<TensorId> tensors;
    for (const std::string& name : from.arguments) {
      EBB_ASSIGN_OR_RETURN(const TensorId tensor, Find(name));
      tensors.push_back(tensor);
    }
    return tensors;
  }

  absl::StatusOr<TensorId> Compute(Nanos duration, std::vector<TensorId> arguments,
                                   const std::vector<ScheduleBuilder::Result>& results) {
    if (results.empty()) return absl::InvalidArgumentError("an operator without results");
    total_cost_ += duration.count();
    for (const ScheduleBuilder::Result& result : results) {
      total_bytes_ += result.bytes;
      if (total_bytes_ > kTotalBytesMax) return absl::InvalidArgumentError("more than 2^60 bytes");
    }
    if (total_cost_ > kTotalCostMax) return absl::InvalidArgumentError("more than 2^48 ns");
    holds_.resize(holds_.size() + results.size(), 1);
    if (holds_.size() > kTensorsMax) return absl::InvalidArgumentError("more than 2^30 tensors");
    return builder_.Compute(duration.count(), std::move(arguments), results);
  }

  absl::Status Constant(const DtrInstruction& from) {
    const DtrResult& result = from.results[0];
    EBB_ASSIGN_OR_RETURN(const TensorId tensor,
                         Compute(Nanos(0), {}, {{result.bytes.count(), -1}}));
    builder_.Pin(tensor);
    Bind(result.name, tensor);
    return absl::OkStatus();
  }

  absl::Status Call(const DtrInstruction& from) {
    EBB_ASSIGN_OR_RETURN(std::vector<TensorId> arguments, Arguments(from));
    std::vector<ScheduleBuilder::Result> results;
    for (const DtrResult& result : from.results) {
      results.push_back({result.alias < 0 ? result.bytes.count() : 0, result.alias});
    }
    EBB_ASSIGN_OR_RETURN(TensorId tensor, Compute(from.duration, std::move(arguments), results));
    for (const DtrResult& result : from.results) Bind(result.name, tensor++);
    return absl::OkStatus();
  }

  absl::Status Mutate(const DtrInstruction& from) {
    EBB_ASSIGN_OR_RETURN(std::vector<TensorId> arguments, Arguments(from));
    std::vector<ScheduleBuilder::Result> results;
    for (const int index : from.mutated) {
      results.push_back({builder_.StorageBytes(arguments[index]), -1});
    }
    EBB_ASSIGN_OR_RETURN(TensorId made, Compute(from.duration, std::move(arguments), results));
    for (const int index : from.mutated) {
      const std::string& name = from.arguments[index];
      // By name, not by `arguments`: one that is listed twice was bound to something new meanwhile.
      EBB_ASSIGN_OR_RETURN(const TensorId old, Find(name));
      Bind(name, made++);
      ReleaseTensor(old);
    }
    return absl::OkStatus();
  }

  absl::Status Copy(const DtrInstruction& from) {
    EBB_ASSIGN_OR_RETURN(const TensorId source, Find(from.source));
    if (from.kind == Kind::kCopyFrom) {
      EBB_ASSIGN_OR_RETURN(const TensorId old, Find(from.name));
      ReleaseTensor(old);
    }
    Bind(from.name, source);
    ++holds_[source];
    builder_.Get(source);
    return absl::OkStatus();
  }

  void Release(const std::string& name) {
    const auto it = names_.find(name);
    if (it != names_.end()) ReleaseTensor(bindings_[it->second]);
  }

  void ReleaseTensor(TensorId tensor) {
    --holds_[tensor];
    builder_.Release(tensor);
  }

  ScheduleBuilder builder_;
  // From a name to its place in bindings_, which is in the order of first binding.
  absl::flat_hash_map<std::string, size_t> names_;
  std::vector<TensorId> bindings_;
  std::vector<int32_t> holds_;  // for each tensor
  int64_t total_cost_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Schedule> ReadSchedule(DtrLog* log) {
  Reader reader;
  while (true) {
    EBB_ASSIGN_OR_RETURN(const std::optional<DtrInstruction> instruction, log->Next());
    if (!instruction.has_value()) return reader.Finish();
    if (const absl::Status status = reader.Add(*instruction); !status.ok()) {
      return log->Error(instruction->line, status.message());
    }
  }
}

}  // namespace ebbtide::published
