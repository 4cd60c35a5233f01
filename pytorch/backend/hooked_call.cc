// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/hooked_call.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

#include "base/check.h"
#include "base/shared_mutex.h"
#include "pytorch/backend/collectives.h"
#include "pytorch/backend/dispatch_key.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

// From so many storages on, they are looked up in a table.
constexpr size_t kLinearSearch = 16;

}  // namespace

int32_t HookedCall::IndexOf(const c10::StorageImpl& storage) const {
  if (!HasBytes(storage)) return TensorSpec::kNoBytes;
  if (entries_.size() > kLinearSearch) {
    const auto it = places_.find(&storage);
    return it == places_.end() ? TensorSpec::kUnknown : it->second;
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].storage == &storage) return static_cast<int32_t>(i);
  }
  return TensorSpec::kUnknown;
}

void HookedCall::AddStorage(c10::StorageImpl& storage, bool written) {
  if (!HasBytes(storage)) {
    // An output argument that the call will give memory to: a replay could not.
    if (written) plain_ = false;
    return;
  }
  if (int32_t i = IndexOf(storage); i >= 0) {
    entries_[static_cast<size_t>(i)].written |= written;
    return;
  }
  BlockHeader* header = HeaderOf(storage);
  Storage* record = nullptr;
  bool foreign = false;
  if (header != nullptr) {
    record = static_cast<Storage*>(header->record.load(std::memory_order_acquire));
    foreign = !storage.resizable() ||
              (header->flags.load(std::memory_order_relaxed) & kBlockEscaped) != 0;
    if (!foreign) MarkUsed(*header);
  } else {
    record = static_cast<Storage*>(RecordOfEvicted(storage));
    foreign = record == nullptr;
  }
  input_bytes_ += static_cast<int64_t>(storage.nbytes());
  plain_ &= !foreign;
  known_ |= record != nullptr;
  entries_.push_back({&storage, written, foreign});
  arguments_.push_back({.storage = record});
  if (entries_.size() == kLinearSearch + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      places_[entries_[i].storage] = static_cast<int32_t>(i);
    }
  } else if (entries_.size() > kLinearSearch) {
    places_[&storage] = static_cast<int32_t>(entries_.size() - 1);
  }
}

void HookedCall::ScanArguments() {
  ReaderLock lock(&manager_.header_mutex());
  const c10::IValue* begin = stack_.data() + (stack_.size() - info_.arguments);
  for (size_t i = 0; i < info_.arguments; ++i) {
    const c10::IValue& argument = begin[i];
    if (argument.isNone() || argument.isInt() || argument.isBool() || argument.isDouble()) continue;
    const bool written = info_.written != 0 && info_.Writes(i, begin);
    const bool visible =
        VisitTensors(absl::MakeConstSpan(&argument, 1), [&](const at::Tensor& tensor, uint32_t) {
          if (!tensor.defined()) return;
          if (c10::StorageImpl* storage = PlainStorage(tensor)) {
            AddStorage(*storage, written);
            return;
          }
          plain_ = false;
          VisitStorages(tensor, [&](c10::StorageImpl& storage) { AddStorage(storage, written); });
        });
    plain_ &= visible;
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    arguments_[i].written = entries_[i].written;
    arguments_[i].preserve = entries_[i].written && info_.makes_outputs;
  }
}

// In-place calls on what is small or unknown leave sources anyway.
bool HookedCall::WillRecord() const {
  if (!info_.replayable || !plain_ || !manager_.evictions_allowed()) return false;
  if (info_.makes_outputs) return entries_.empty() || manager_.MayMakeLarge(input_bytes_);
  for (const Runtime::Argument& argument : arguments_) {
    if (argument.written && argument.storage != nullptr &&
        argument.storage->bytes >= manager_.min_bytes()) {
      return true;
    }
  }
  return false;
}

void HookedCall::CaptureArguments() {
  const c10::IValue* begin = stack_.data() + (stack_.size() - info_.arguments);
  saved_.assign(begin, begin + info_.arguments);
  bool lists = false;
  for (const c10::IValue& argument : saved_) lists |= argument.isOptionalTensorList();
  if (info_.written != 0 || lists) {
    // The call may change its arguments' geometry, and some kernels put other tensors into the
    // lists of indices that they are given: describe them as they are now.
    operation_ = TorchOperation::Capture(op_, info_, keys_, saved_,
                                         [this](const c10::StorageImpl& s) { return IndexOf(s); });
    recording_ = operation_ != nullptr;
  }
  if (!info_.random) return;
  generator_ = at::detail::getDefaultCPUGenerator();
  if (info_.generator_argument >= 0) {
    const c10::IValue& given = saved_[static_cast<size_t>(info_.generator_argument)];
    if (given.isGenerator()) generator_ = given.toGenerator();
  }
  random_ = RandomState::Capture(generator_);
  recording_ &= random_ != nullptr;
}

void HookedCall::Begin() {
  bool needed = known_;
  for (size_t i = 0; i < entries_.size(); ++i) {
    // What is overwritten while something is computed from it will be needed again: its old content
    // must be known before.
    const bool preserve = recording_ && arguments_[i].preserve && !entries_[i].foreign;
    if (!preserve || arguments_[i].storage != nullptr) continue;
    arguments_[i].storage = manager_.Adopt(*entries_[i].storage, *HeaderOf(*entries_[i].storage));
    needed = true;
  }
  if (!needed) return;
  const absl::Status status = manager_.runtime().BeginCall(absl::MakeSpan(arguments_));
  Manager::FlushReferences();
  if (!status.ok()) manager_.ThrowStatus(status);
  begun_ = true;
}

void HookedCall::RunKernel() {
  const Nanos pressure_before = recording_ ? Manager::PressureTime() : Nanos(0);
  const Nanos start = recording_ ? MonotonicNow() : Nanos(0);
  try {
    const c10::impl::ExcludeDispatchKeyGuard hook_off(HookKeys());
    const OperatorScope scope;
    op_.redispatchBoxed(keys_, &stack_);
  } catch (...) {
    if (begun_) manager_.runtime().AbortCall(absl::MakeSpan(arguments_));
    ReleaseOperatorHolds();
    RearmArguments();
    throw;
  }
  if (recording_) cost_ = MonotonicNow() - start - (Manager::PressureTime() - pressure_before);
}

void HookedCall::ScanOutputs() {
  const absl::Span<const c10::IValue> returned(stack_.data() + (stack_.size() - info_.returns),
                                               info_.returns);
  hidden_outputs_ = !VisitTensors(returned, [&](const at::Tensor& tensor, uint32_t place) {
    if (!tensor.defined()) return;
    c10::StorageImpl* const plain = PlainStorage(tensor);
    const auto visit = [&](c10::StorageImpl& storage) {
      if (!HasBytes(storage) || IndexOf(storage) >= 0) return;
      BlockHeader* header = HeaderOf(storage);
      if (header == nullptr) return;
      if (!info_.uninitialised) MarkUsed(*header);
      if ((header->flags.load(std::memory_order_relaxed) & kBlockEscaped) == 0) Arm(storage);
      if (header->record.load(std::memory_order_relaxed) != nullptr) return;
      for (const FreshOutput& output : fresh_) {
        if (output.storage == &storage) return;
      }
      // Storages of sparse and nested results are outputs that no replay could give back.
      if (plain != nullptr) fresh_.push_back({&storage, header, place});
    };
    plain != nullptr ? visit(*plain) : (void)VisitStorages(tensor, visit);
  });
}

void HookedCall::RearmArguments() {
  for (const Entry& entry : entries_) {
    if (!entry.foreign) Arm(*entry.storage);
  }
}

std::unique_ptr<TorchOperation> HookedCall::FinishOperation() {
  if (!recording_ || hidden_outputs_) return nullptr;
  // An in-place call was only captured because its result is worth it.
  bool wanted = !info_.makes_outputs;
  for (const FreshOutput& output : fresh_) {
    wanted |= static_cast<int64_t>(output.header->bytes) >= manager_.min_bytes().count();
  }
  if (!wanted) return nullptr;
  for (size_t i = 0; i < entries_.size(); ++i) {
    // The kernel may have given an argument other memory, or taken it out of our hands.
    BlockHeader* header = HeaderOf(*entries_[i].storage);
    if (header == nullptr) return nullptr;
    if (arguments_[i].storage != nullptr) {
      if (header->record.load() != arguments_[i].storage) return nullptr;
    } else if (arguments_[i].written) {
      return nullptr;
    }
  }
  if (operation_ == nullptr) {
    operation_ = TorchOperation::Capture(op_, info_, keys_, saved_,
                                         [this](const c10::StorageImpl& s) { return IndexOf(s); });
    if (operation_ == nullptr) return nullptr;
  }
  if (random_ != nullptr && !random_->StillHolds(generator_)) {
    operation_->set_random_state(std::move(random_));
  }
  return std::move(operation_);
}

void HookedCall::End() {
  std::unique_ptr<TorchOperation> operation = FinishOperation();
  absl::InlinedVector<Storage*, 4> outputs;
  if (operation != nullptr) {
    absl::InlinedVector<TorchOperation::OutputPlace, 4> places;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (arguments_[i].storage != nullptr) continue;
      arguments_[i].storage = manager_.Adopt(*entries_[i].storage, *HeaderOf(*entries_[i].storage));
    }
    for (const FreshOutput& output : fresh_) {
      const Bytes bytes(static_cast<int64_t>(output.header->bytes));
      const bool large = bytes >= manager_.min_bytes();
      outputs.push_back(large ? manager_.Adopt(*output.storage, *output.header) : nullptr);
      places.push_back({output.place, bytes});
    }
    operation->set_outputs(places);
  } else if (!begun_) {
    return;
  }
  manager_.runtime().EndCall(absl::MakeSpan(arguments_), std::move(operation), outputs, cost_);
}

void HookedCall::KeepForOtherThreads() {
  if (info_.collective) {
    std::vector<c10::StorageImpl*> storages;
    for (const Entry& entry : entries_) storages.push_back(entry.storage);
    for (const FreshOutput& output : fresh_) storages.push_back(output.storage);
    const absl::Span<const c10::IValue> returned(stack_.data() + (stack_.size() - info_.returns),
                                                 info_.returns);
    KeepUntilDone(&manager_, storages, returned);
    return;
  }
  // An object that the call returned may hold on to its arguments.
  if (!hidden_outputs_ && !info_.keeps_addresses) return;
  for (const Entry& entry : entries_) manager_.Escape(*entry.storage);
}

void HookedCall::Run() {
  ScanArguments();
  manager_.CountCall();
  recording_ = WillRecord();
  if (recording_) CaptureArguments();
  Begin();
  RunKernel();
  ScanOutputs();
  RearmArguments();
  End();
  ReleaseOperatorHolds();
  if (info_.collective || hidden_outputs_ || info_.keeps_addresses) KeepForOtherThreads();
}

}  // namespace ebbtide
