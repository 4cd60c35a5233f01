// SPDX-License-Identifier: Apache-2.0
//
// HookedCall: one operator call on its way through the hook, from the arguments on torch's stack to
// the record of it. The hook makes one on its own stack for each call.
//
// Threads: used by one thread only. Ownership: borrows the stack; holds references to the arguments
// while the kernel runs, so that storages live until the call has been recorded.

#ifndef EBBTIDE_PYTORCH_BACKEND_HOOKED_CALL_H_
#define EBBTIDE_PYTORCH_BACKEND_HOOKED_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "pytorch/backend/manager.h"
#include "pytorch/backend/op_info.h"
#include "pytorch/backend/torch_operation.h"

namespace ebbtide {

class HookedCall {
 public:
  // `keys` is what the call is dispatched with below the hook.
  HookedCall(Manager* manager, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
             torch::jit::Stack* stack)
      : manager_(*manager), op_(op), info_(InfoOf(op)), keys_(keys), stack_(*stack) {}

  // Runs the call. Throws what the kernel throws, torch.OutOfMemoryError if its arguments cannot be
  // brought back within the budget, RuntimeError if a replay went wrong.
  void Run();

 private:
  struct Entry {
    c10::StorageImpl* storage;
    bool written;
    // Not managed, or its bytes may change unseen: what is computed from it cannot be made again.
    bool foreign;
  };
  struct FreshOutput {
    c10::StorageImpl* storage;
    BlockHeader* header;
    uint32_t place;
  };

  void ScanArguments();
  void AddStorage(c10::StorageImpl& storage, bool written);
  int32_t IndexOf(const c10::StorageImpl& storage) const;
  bool WillRecord() const;
  void CaptureArguments();
  void Begin();
  void RunKernel();
  void ScanOutputs();
  void End();
  std::unique_ptr<TorchOperation> FinishOperation();
  void RearmArguments();
  void KeepForOtherThreads();

  Manager& manager_;
  const c10::OperatorHandle& op_;
  const OpInfo& info_;
  const c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;

  absl::InlinedVector<Entry, 8> entries_;
  absl::InlinedVector<Runtime::Argument, 8> arguments_;
  // Filled once there are too many storages for a linear search.
  absl::flat_hash_map<const c10::StorageImpl*, int32_t> places_;
  int64_t input_bytes_ = 0;
  bool plain_ = true;      // every argument can be described, and no input is foreign
  bool known_ = false;     // some storage has a record
  bool begun_ = false;
  bool recording_ = false;
  absl::InlinedVector<c10::IValue, 8> saved_;
  std::unique_ptr<TorchOperation> operation_;
  at::Generator generator_;
  std::shared_ptr<const RandomState> random_;
  Nanos cost_{0};
  absl::InlinedVector<FreshOutput, 4> fresh_;
  bool hidden_outputs_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_HOOKED_CALL_H_
