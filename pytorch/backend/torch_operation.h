// SPDX-License-Identifier: Apache-2.0
//
// TorchOperation: one recorded operator call of PyTorch, and the replayer that runs it again
// through the boxed dispatcher, below autograd and below the hook.
//
// Recording copies the call's arguments, with each tensor replaced by a TensorSpec, so that it
// holds no tensor and no storage. Threads: an operation is immutable once made; replays run on
// whichever thread needs the value. Errors of the operator become Status; ResourceExhausted for
// memory.

#ifndef EBBTIDE_PYTORCH_BACKEND_TORCH_OPERATION_H_
#define EBBTIDE_PYTORCH_BACKEND_TORCH_OPERATION_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "pytorch/backend/call_environment.h"
#include "pytorch/backend/op_info.h"
#include "pytorch/backend/random_state.h"
#include "pytorch/backend/tensor_spec.h"
#include "rematerializer/op_replayer.h"
#include "tracker/value.h"

namespace ebbtide {

class TorchOperation : public Operation {
 public:
  // Index of a storage among the call's arguments; TensorSpec::kNoBytes if it has no bytes,
  // TensorSpec::kUnknown if it is none of them.
  using IndexOf = absl::FunctionRef<int32_t(const c10::StorageImpl&)>;

  // Null if an argument cannot be described (a tensor without plain storage, an object that may
  // hold tensors). `keys` is the set that the call is dispatched with below the hook.
  static std::unique_ptr<TorchOperation> Capture(const c10::OperatorHandle& op, const OpInfo& info,
                                                 c10::DispatchKeySet keys,
                                                 absl::Span<const c10::IValue> arguments,
                                                 IndexOf index_of);

  absl::string_view name() const override { return info_.name; }
  bool IsScratch(size_t output) const override;

  // The generator's state before the call, if the call moved it.
  void set_random_state(std::shared_ptr<const RandomState> state) { random_ = std::move(state); }
  // One of the call's outputs: the place of a tensor on its storage among the flattened return
  // values, and the storage's size.
  struct OutputPlace {
    uint32_t place;
    Bytes bytes;
  };
  // In the order of Call::outputs, which is that of places.
  void set_outputs(absl::Span<const OutputPlace> outputs) {
    outputs_.assign(outputs.begin(), outputs.end());
  }

  // As OpReplayer::Replay.
  absl::Status Replay(const Call& call, absl::Span<void* const> inputs,
                      absl::Span<void*> outputs) const;

 private:
  // What stands in the place of one argument: a value, a tensor or a list of tensors.
  struct Slot {
    enum class Kind : char { kValue, kTensor, kTensorList, kOptionalTensorList };
    Kind kind = Kind::kValue;
    c10::IValue value;
    absl::InlinedVector<TensorSpec, 1> tensors;
  };

  TorchOperation(const c10::OperatorHandle& op, const OpInfo& info, c10::DispatchKeySet keys)
      : op_(op), info_(info), keys_(keys), environment_(CallEnvironment::Current()) {}

  bool AddSlot(const c10::IValue& argument, IndexOf index_of);
  torch::jit::Stack MakeStack(const Call& call, absl::Span<void* const> inputs) const;
  void Run(torch::jit::Stack* stack) const;

  const c10::OperatorHandle op_;
  const OpInfo& info_;
  const c10::DispatchKeySet keys_;
  const std::shared_ptr<const CallEnvironment> environment_;
  std::shared_ptr<const RandomState> random_;
  absl::InlinedVector<Slot, 4> slots_;
  absl::InlinedVector<OutputPlace, 2> outputs_;
};

class TorchReplayer : public OpReplayer {
 public:
  absl::Status Replay(const Call& call, absl::Span<void* const> inputs,
                      absl::Span<void*> outputs) override;

  // From now on every replay runs on a thread of its own: after a fork the OpenMP of the surviving
  // thread waits for workers that the child does not have, that of a new thread starts its own.
  void UseNewThreads() { new_threads_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> new_threads_{false};
};

// Whether the calling thread is running a replay: its allocations are not the program's.
bool InReplay();

// Calls `visit` with each tensor of a stack's values, those in lists included, and its running
// number. False if there is something in which tensors could hide.
bool VisitTensors(absl::Span<const c10::IValue> values,
                  absl::FunctionRef<void(const at::Tensor&, uint32_t place)> visit);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_TORCH_OPERATION_H_
