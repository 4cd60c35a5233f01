// SPDX-License-Identifier: Apache-2.0

#include "runtime/closure.h"

#include <utility>

#include "absl/status/statusor.h"

namespace ebbtide {

ClosureOperation::ClosureOperation(Parts parts) : parts_(std::move(parts)) {}

absl::Status ClosureOperation::Run(absl::Span<void* const> inputs,
                                   absl::Span<void* const> outputs) const {
  std::vector<const void*> reads;
  std::vector<void*> writes;
  for (size_t i : parts_.reads) reads.push_back(inputs[i]);
  for (size_t i : parts_.writes) writes.push_back(inputs[i]);
  std::mt19937_64 random = parts_.random;
  return parts_.kernel({reads, writes, outputs, random});
}

absl::Status ClosureReplayer::Replay(const Call& call, absl::Span<void* const> inputs,
                                     absl::Span<void*> outputs) {
  const auto& operation = static_cast<const ClosureOperation&>(*call.operation);
  std::vector<void*> made;
  absl::Status status;
  for (Bytes size : operation.outputs()) {
    absl::StatusOr<void*> memory = host_->AllocateMemory(size);
    if (!memory.ok()) {
      status = memory.status();
      break;
    }
    made.push_back(*memory);
  }
  if (status.ok()) status = operation.Run(inputs, made);
  for (size_t j = 0; j < made.size(); ++j) {
    if (status.ok()) {
      outputs[j] = made[j];
    } else {
      host_->FreeMemory(made[j]);
    }
  }
  return status;
}

}  // namespace ebbtide
