// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/late_threads.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <utility>
#include <vector>

#include "pytorch/backend/dispatch_hook.h"
#include "pytorch/backend/dispatch_key.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/manager.h"
#include "pytorch/backend/tensor_spec.h"
#include "pytorch/backend/torch_operation.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

int (*is_compute_worker)() = nullptr;

// What the first operator of a thread works on.
class FirstOperator : public at::ObserverContext {
 public:
  explicit FirstOperator(std::vector<c10::StorageImpl*> storages) : storages_(std::move(storages)) {
    const PythonHookCallbacks callbacks = MakePythonHookCallbacks();
    for (c10::StorageImpl* storage : storages_) callbacks.hold(*storage, HoldKind::kWrite);
  }
  ~FirstOperator() override {
    const PythonHookCallbacks callbacks = MakePythonHookCallbacks();
    for (c10::StorageImpl* storage : storages_) callbacks.release(*storage);
  }

 private:
  const std::vector<c10::StorageImpl*> storages_;
};

std::unique_ptr<at::ObserverContext> OnOperator(const at::RecordFunction& function) {
  if (c10::impl::tls_is_dispatch_key_included(HookKey()) || InOperator() ||
      is_compute_worker() != 0) {
    return nullptr;
  }
  ArmThread();
  std::vector<c10::StorageImpl*> storages;
  const auto inputs = function.inputs();
  VisitTensors(
      absl::MakeConstSpan(inputs.data(), inputs.size()), [&](const at::Tensor& tensor, uint32_t) {
        if (!tensor.defined()) return;
        VisitStorages(tensor, [&](c10::StorageImpl& storage) { storages.push_back(&storage); });
      });
  return std::make_unique<FirstOperator>(std::move(storages));
}

}  // namespace

void ArmThreadsAtFirstOperator(int (*on_compute_worker)()) {
  is_compute_worker = on_compute_worker;
  at::addGlobalCallback(at::RecordFunctionCallback(&OnOperator)
                            .needsInputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace ebbtide
