// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/held_storages.h"

#include <utility>
#include <vector>

#include "pytorch/backend/manager.h"

namespace ebbtide {
namespace {

struct Holds {
  // Calls that began but were not ended: compiled kernels may write what they take.
  std::vector<Runtime::Argument> kernel;
  std::vector<Value*> in_operator;
  // Python's readers nest; each release undoes the last hold of its storage.
  std::vector<std::pair<c10::StorageImpl*, Value*>> python;
};

thread_local Holds holds;

void Check(const absl::Status& status) {
  Manager::FlushReferences();
  if (!status.ok()) Manager::Get()->ThrowStatus(status);
}

Value* PinRecord(Storage* record) {
  absl::StatusOr<Value*> value = Manager::Get()->runtime().Pin(record);
  Check(value.status());
  return *value;
}

// The access may write: the content from before ends here, as with an operator that writes.
void HoldForKernel(Storage* record) {
  Runtime::Argument argument{.storage = record, .written = true};
  Check(Manager::Get()->runtime().BeginCall(absl::MakeSpan(&argument, 1)));
  holds.kernel.push_back(argument);
}

void OnTouch(c10::StorageImpl& storage, AccessKind kind) {
  auto* record = static_cast<Storage*>(RecordOfEvicted(storage));
  if (record == nullptr) return;
  switch (kind) {
    case AccessKind::kInOperator:
      holds.in_operator.push_back(PinRecord(record));
      return;
    case AccessKind::kFill:
    case AccessKind::kKernelCall:
      HoldForKernel(record);
      return;
    case AccessKind::kEscape:
      Manager::Get()->Escape(storage);
      return;
  }
}

void OnEscape(c10::StorageImpl& storage, BlockHeader& header, AccessKind kind) {
  auto* record = static_cast<Storage*>(header.record.load(std::memory_order_acquire));
  switch (kind) {
    case AccessKind::kEscape:
      Manager::Get()->Escape(storage);
      return;
    case AccessKind::kFill:
    case AccessKind::kKernelCall:
    case AccessKind::kInOperator:
      // Without a record nothing was computed from it that could ever be made again.
      if (record != nullptr) HoldForKernel(record);
      return;
  }
}

void OnEvictedGone(void* record) { Manager::Get()->EvictedGone(static_cast<Storage*>(record)); }

void Hold(c10::StorageImpl& storage, bool escape) {
  if (escape) {
    Manager::Get()->Escape(storage);
    Disarm(storage);
    return;
  }
  if (Storage* record = Manager::RecordOf(storage)) {
    holds.python.emplace_back(&storage, PinRecord(record));
  }
  Disarm(storage);
}

void Release(c10::StorageImpl& storage) {
  for (size_t i = holds.python.size(); i-- > 0;) {
    if (holds.python[i].first != &storage) continue;
    Value* const value = holds.python[i].second;
    holds.python.erase(holds.python.begin() + static_cast<ptrdiff_t>(i));
    Manager::Get()->runtime().Unpin(value);
    break;
  }
  const BlockHeader* header = HeaderOf(storage);
  if (header != nullptr && (header->flags.load() & kBlockEscaped) == 0) Arm(storage);
}

}  // namespace

SwapCallbacks MakeSwapCallbacks() {
  return {.on_touch = &OnTouch, .on_escape = &OnEscape, .on_evicted_gone = &OnEvictedGone};
}

PythonHookCallbacks MakePythonHookCallbacks() {
  return {.hold = &Hold, .release = &Release, .ready = nullptr};
}

void ReleaseKernelHolds() {
  if (holds.kernel.empty()) return;
  std::vector<Runtime::Argument> arguments = std::exchange(holds.kernel, {});
  for (Runtime::Argument& argument : arguments) {
    Manager::Get()->runtime().EndCall(absl::MakeSpan(&argument, 1), nullptr, {}, Nanos(0));
  }
}

void ReleaseOperatorHolds() {
  if (holds.in_operator.empty()) return;
  std::vector<Value*> values = std::exchange(holds.in_operator, {});
  for (Value* value : values) Manager::Get()->runtime().Unpin(value);
}

}  // namespace ebbtide
