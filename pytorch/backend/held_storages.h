// SPDX-License-Identifier: Apache-2.0
//
// Storages that are accessed without an operator, and what keeps them in memory meanwhile: a
// function of Python's that reads them, a kernel of torch.compile that took their pointers, an
// operator that reaches them through an object. Addresses that leave our sight for good are
// escapes.
//
// Threads: holds belong to the thread that took them. Errors are thrown into the access, as the
// hook's are.

#ifndef EBBTIDE_PYTORCH_BACKEND_HELD_STORAGES_H_
#define EBBTIDE_PYTORCH_BACKEND_HELD_STORAGES_H_

#include <vector>

#include "pytorch/python_hooks.h"
#include "pytorch/storage_swap.h"
#include "tracker/value.h"

namespace ebbtide {

// What storage_swap.h and python_hooks.h call. REQUIRES: Manager::Get()->manages().
SwapCallbacks MakeSwapCallbacks();
// `ready` is the caller's to fill in.
PythonHookCallbacks MakePythonHookCallbacks();

// Keeps storages in memory for its lifetime. Throws if one cannot be brought back.
class StorageHold {
 public:
  // The references must outlive the hold.
  explicit StorageHold(const std::vector<c10::intrusive_ptr<c10::StorageImpl>>& storages);
  ~StorageHold();
  StorageHold(const StorageHold&) = delete;
  StorageHold& operator=(const StorageHold&) = delete;

 private:
  std::vector<Value*> values_;
};

namespace internal {
// Whether the thread holds something for a compiled kernel, or for the operator that it is in.
// Hardly ever, and asked at each operator.
extern constinit thread_local bool holds_for_kernel __attribute__((tls_model("initial-exec")));
extern constinit thread_local bool holds_for_operator __attribute__((tls_model("initial-exec")));
void ReleaseKernelHolds();
void ReleaseOperatorHolds();
}  // namespace internal

// An operator starts: what a compiled kernel took on this thread is done with.
inline void ReleaseKernelHolds() {
  if (internal::holds_for_kernel) internal::ReleaseKernelHolds();
}
// An operator has ended: so is what it reached through objects.
inline void ReleaseOperatorHolds() {
  if (internal::holds_for_operator) internal::ReleaseOperatorHolds();
}

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_HELD_STORAGES_H_
