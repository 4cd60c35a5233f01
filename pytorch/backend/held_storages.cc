// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/held_storages.h"

#include <utility>
#include <vector>

#include "pytorch/backend/manager.h"

namespace ebbtide {

namespace internal {
constinit thread_local bool holds_for_kernel __attribute__((tls_model("initial-exec"))) = false;
constinit thread_local bool holds_for_operator __attribute__((tls_model("initial-exec"))) = false;
}  // namespace internal

namespace {

struct PythonHold {
  c10::StorageImpl* storage;
  Value* value;               // of a reader
  Runtime::Argument written;  // of a writer
};

struct Holds {
  // Calls that began but were not ended: compiled kernels may write what they take.
  std::vector<Runtime::Argument> kernel;
  std::vector<Value*> in_operator;
  // Python's readers and writers nest; each release undoes the last hold of its storage.
  std::vector<PythonHold> python;
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
Runtime::Argument BeginWrite(Storage* record) {
  Runtime::Argument argument{.storage = record, .written = true};
  Check(Manager::Get()->runtime().BeginCall(absl::MakeSpan(&argument, 1)));
  return argument;
}

void EndWrite(Runtime::Argument argument) {
  Manager::Get()->runtime().EndCall(absl::MakeSpan(&argument, 1), nullptr, {}, Nanos(0));
}

void HoldForKernel(Storage* record) {
  holds.kernel.push_back(BeginWrite(record));
  internal::holds_for_kernel = true;
}

void OnTouch(c10::StorageImpl& storage, AccessKind kind) {
  auto* record = static_cast<Storage*>(RecordOfEvicted(storage));
  if (record == nullptr) return;
  switch (kind) {
    case AccessKind::kInOperator:
      holds.in_operator.push_back(PinRecord(record));
      internal::holds_for_operator = true;
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

void Hold(c10::StorageImpl& storage, HoldKind kind) {
  Storage* record = Manager::Get()->RecordOf(storage);
  if (kind == HoldKind::kEscape) {
    Manager::Get()->Escape(storage);
  } else if (record != nullptr && kind == HoldKind::kRead) {
    holds.python.push_back({&storage, PinRecord(record), {}});
  } else if (record != nullptr) {
    holds.python.push_back({&storage, nullptr, BeginWrite(record)});
  }
  Disarm(storage);
}

void Release(c10::StorageImpl& storage) {
  for (size_t i = holds.python.size(); i-- > 0;) {
    if (holds.python[i].storage != &storage) continue;
    PythonHold hold = holds.python[i];
    holds.python.erase(holds.python.begin() + static_cast<ptrdiff_t>(i));
    if (hold.value != nullptr) {
      Manager::Get()->runtime().Unpin(hold.value);
    } else {
      EndWrite(hold.written);
    }
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

StorageHold::StorageHold(const std::vector<c10::intrusive_ptr<c10::StorageImpl>>& storages) {
  for (const auto& storage : storages) {
    Storage* record = Manager::Get()->RecordOf(*storage);
    if (record == nullptr) continue;
    absl::StatusOr<Value*> value = Manager::Get()->runtime().Pin(record);
    Manager::FlushReferences();
    if (value.ok()) {
      values_.push_back(*value);
      continue;
    }
    for (Value* held : values_) Manager::Get()->runtime().Unpin(held);
    Manager::Get()->ThrowStatus(value.status());
  }
}

StorageHold::~StorageHold() {
  for (Value* value : values_) Manager::Get()->runtime().Unpin(value);
}

namespace internal {

void ReleaseKernelHolds() {
  holds_for_kernel = false;
  const std::vector<Runtime::Argument> arguments = std::exchange(holds.kernel, {});
  for (const Runtime::Argument& argument : arguments) EndWrite(argument);
}

void ReleaseOperatorHolds() {
  holds_for_operator = false;
  const std::vector<Value*> values = std::exchange(holds.in_operator, {});
  for (Value* value : values) Manager::Get()->runtime().Unpin(value);
}

}  // namespace internal
}  // namespace ebbtide
