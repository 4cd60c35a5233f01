// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/torch_operation.h"

#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <exception>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "pytorch/block_header.h"
#include "pytorch/cpu_allocator.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

// Asked at each allocation.
thread_local int replay_depth __attribute__((tls_model("initial-exec"))) = 0;

// While it lives, operators run as the recorded one did: below autograd, autocast, functorch,
// Python modes and the hook, and their allocations are ours.
class ReplayScope {
 public:
  ReplayScope() : keys_(c10::default_included_set, kExcluded | c10::default_excluded_set) {
    ++replay_depth;
  }
  ~ReplayScope() { --replay_depth; }

 private:
  // Everything above the backends' own kernels.
  static constexpr c10::DispatchKeySet kExcluded =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Fake, c10::DispatchKey::Python,
                           c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher,
                           c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize,
                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                           c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::Tracer, c10::DispatchKey::PreDispatch});
  OperatorScope operator_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

bool IsPlainValue(const c10::IValue& value) {
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() ||
         value.isComplexDouble() || value.isString() || value.isDevice() || value.isGenerator() ||
         value.isIntList() || value.isDoubleList() || value.isBoolList() ||
         value.isComplexDoubleList();
}

bool IsPlainList(const c10::IValue& value) {
  if (!value.isList()) return false;
  for (const c10::IValue& element : value.toListRef()) {
    if (!IsPlainValue(element)) return false;
  }
  return true;
}

bool Visit(const c10::IValue& value, uint32_t* place,
           absl::FunctionRef<void(const at::Tensor&, uint32_t)> visit) {
  if (value.isTensor()) {
    visit(value.toTensor(), (*place)++);
    return true;
  }
  if (IsPlainValue(value)) return true;
  if (!value.isList() && !value.isTuple()) return false;
  bool all = true;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) all &= Visit(element, place, visit);
  } else {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      all &= Visit(element, place, visit);
    }
  }
  return all;
}

absl::Status StatusOfException(absl::string_view name) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return absl::InternalError(
        absl::StrCat(name, " failed when it was run again: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(name, " failed when it was run again: ", error.what()));
  }
}

// Takes a fresh storage's memory away from it; null if it is not a block of ours of this size.
void* TakeOutput(const at::Tensor& tensor, Bytes bytes) {
  c10::StorageImpl* storage = PlainStorage(tensor);
  if (storage == nullptr) return nullptr;
  BlockHeader* header = HeaderOf(*storage);
  if (header == nullptr || header->bytes != static_cast<uint64_t>(bytes.count())) return nullptr;
  Disarm(*storage);
  c10::DataPtr data = std::move(storage->_mutable_data_ptr_no_checks());
  void* const memory = data.get();
  data.release_context();
  return memory;
}

}  // namespace

bool InReplay() { return replay_depth > 0; }

bool VisitTensors(absl::Span<const c10::IValue> values,
                  absl::FunctionRef<void(const at::Tensor&, uint32_t place)> visit) {
  uint32_t place = 0;
  bool all = true;
  for (const c10::IValue& value : values) all &= Visit(value, &place, visit);
  return all;
}

std::unique_ptr<TorchOperation> TorchOperation::Capture(const c10::OperatorHandle& op,
                                                        const OpInfo& info,
                                                        c10::DispatchKeySet keys,
                                                        absl::Span<const c10::IValue> arguments,
                                                        IndexOf index_of) {
  std::unique_ptr<TorchOperation> operation(new TorchOperation(op, info, keys));
  for (const c10::IValue& argument : arguments) {
    if (!operation->AddSlot(argument, index_of)) return nullptr;
  }
  return operation;
}

bool TorchOperation::AddSlot(const c10::IValue& argument, IndexOf index_of) {
  Slot slot;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      slot.tensors.emplace_back();
      return true;
    }
    const c10::StorageImpl* storage = PlainStorage(tensor);
    if (storage == nullptr) return false;
    const int32_t input = index_of(*storage);
    if (input == TensorSpec::kUnknown) return false;
    slot.tensors.push_back(DescribeTensor(tensor, input));
    return true;
  };
  bool described = true;
  if (argument.isTensor()) {
    slot.kind = Slot::Kind::kTensor;
    described = add(argument.toTensor());
  } else if (argument.isTensorList()) {
    slot.kind = Slot::Kind::kTensorList;
    for (const at::Tensor& tensor : argument.toTensorVector()) described &= add(tensor);
  } else if (argument.isOptionalTensorList()) {
    slot.kind = Slot::Kind::kOptionalTensorList;
    for (const auto& tensor : argument.toOptionalTensorVector()) {
      described &= add(tensor.value_or(at::Tensor()));
    }
  } else if (IsPlainValue(argument) || IsPlainList(argument)) {
    slot.value = argument;
  } else {
    described = false;
  }
  if (described) slots_.push_back(std::move(slot));
  return described;
}

torch::jit::Stack TorchOperation::MakeStack(const Call& call,
                                            absl::Span<void* const> inputs) const {
  const auto make = [&](const TensorSpec& spec) {
    if (spec.input < 0) return MakeTensor(spec, nullptr, 0);
    const size_t i = static_cast<size_t>(spec.input);
    return MakeTensor(spec, inputs[i], static_cast<size_t>(call.inputs[i].value->bytes.count()));
  };
  torch::jit::Stack stack;
  stack.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    switch (slot.kind) {
      case Slot::Kind::kValue:
        stack.push_back(slot.value);
        break;
      case Slot::Kind::kTensor:
        stack.emplace_back(make(slot.tensors[0]));
        break;
      case Slot::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const TensorSpec& spec : slot.tensors) list.push_back(make(spec));
        stack.emplace_back(std::move(list));
        break;
      }
      case Slot::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const TensorSpec& spec : slot.tensors) {
          at::Tensor tensor = make(spec);
          list.push_back(tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt);
        }
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  return stack;
}

// What the call left in written arguments comes after the results.
bool TorchOperation::IsScratch(size_t output) const {
  if (output >= outputs_.size()) return info_.scratch_arguments;
  const uint32_t place = outputs_[output].place;
  return place < 64 && (info_.scratch_results >> place & 1) != 0;
}

void TorchOperation::Run(torch::jit::Stack* stack) const {
  const EnvironmentScope environment(*environment_);
  if (random_ == nullptr) {
    op_.redispatchBoxed(keys_, stack);
    return;
  }
  const int place = info_.generator_argument;
  if (place >= 0 && (*stack)[static_cast<size_t>(place)].isGenerator()) {
    // A generator of our own, so that other threads may draw from the program's meanwhile.
    at::Generator generator = at::detail::createCPUGenerator();
    random_->Restore(generator);
    (*stack)[static_cast<size_t>(place)] = generator;
    op_.redispatchBoxed(keys_, stack);
    return;
  }
  const DefaultGeneratorScope generator(*random_);
  op_.redispatchBoxed(keys_, stack);
}

absl::Status TorchOperation::Replay(const Call& call, absl::Span<void* const> inputs,
                                    absl::Span<void*> outputs) const {
  const ReplayScope scope;
  try {
    torch::jit::Stack stack = MakeStack(call, inputs);
    Run(&stack);
    size_t next = 0;
    absl::Status status;
    VisitTensors(stack, [&](const at::Tensor& tensor, uint32_t place) {
      if (next == outputs_.size() || outputs_[next].place != place) return;
      const size_t j = next++;
      if (call.outputs[j].value == nullptr || !status.ok()) return;
      outputs[j] = TakeOutput(tensor, outputs_[j].bytes);
      if (outputs[j] == nullptr) {
        status = absl::InternalError(
            absl::StrCat(name(), " gave an output of another size when it was run again"));
      }
    });
    if (!status.ok()) {
      for (void*& memory : outputs) {
        if (memory != nullptr) ReleaseCpuBlock(std::exchange(memory, nullptr));
      }
    }
    return status;
  } catch (...) {
    return StatusOfException(name());
  }
}

absl::Status TorchReplayer::Replay(const Call& call, absl::Span<void* const> inputs,
                                   absl::Span<void*> outputs) {
  const auto& operation = static_cast<const TorchOperation&>(*call.operation);
  if (!new_threads_.load(std::memory_order_relaxed)) {
    return operation.Replay(call, inputs, outputs);
  }
  absl::Status status;
  std::thread([&] { status = operation.Replay(call, inputs, outputs); }).join();
  return status;
}

}  // namespace ebbtide
