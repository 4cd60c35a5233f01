// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/dispatch_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "pytorch/backend/collectives.h"
#include "pytorch/backend/dispatch_key.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/hooked_call.h"
#include "pytorch/backend/manager.h"
#include "pytorch/backend/op_info.h"
#include "pytorch/backend/small_calls.h"
#include "pytorch/backend/tensor_spec.h"
#include "pytorch/backend/torch_operation.h"

namespace ebbtide {

namespace {

// Calls whose parts pass the hook one by one: composite operators, and what Python takes apart.
bool IsTakenApart(const c10::OperatorHandle& op, c10::DispatchKeySet below) {
  return below.has(c10::DispatchKey::Python) || InfoOf(op).composite;
}

void Hook(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = KeysBelow(HookKey(), keys);
  Manager* manager = Manager::Get();
  ReleaseKernelHolds();
  PollCollectives(manager);
  if (IsTakenApart(op, below)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  HookedCall(manager, op, below - HookKeys(), stack).Run();
}

// Counts what Hook would count.
void Count(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = KeysBelow(HookKey(), keys);
  if (IsTakenApart(op, below)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  Manager::Get()->CountCall();
  const c10::impl::ExcludeDispatchKeyGuard hook_off(HookKeys());
  op.redispatchBoxed(below - HookKeys(), stack);
}

// Composite operators that read an argument's memory by a pointer, above the hook.
constexpr const char* kDirectReaders[] = {
    "quantile",
    "quantile.scalar",
    "nanquantile",
    "nanquantile.scalar",
    "ctc_loss.Tensor",
    "tensor_split.tensor_indices_or_sections",
    "_pad_packed_sequence",
};

// Keeps the arguments in memory while such an operator runs.
void HoldArguments(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages;
  const size_t count = op.schema().arguments().size();
  VisitTensors(absl::MakeConstSpan(stack->data() + (stack->size() - count), count),
               [&](const at::Tensor& tensor, uint32_t) {
                 if (!tensor.defined()) return;
                 VisitStorages(tensor, [&](c10::StorageImpl& storage) {
                   storages.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
                 });
               });
  const StorageHold hold(storages);
  op.redispatchBoxed(KeysBelow(ReaderKey(), keys), stack);
}

// Operators that only look at a storage in another way: they read no bytes and make none, so that
// the hook would have nothing to do.
constexpr const char* kViews[] = {
    "_conj",
    "_neg_view",
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "t",
    "transpose.int",
    "unbind.int",
    "unfold",
    "unsqueeze",
    "view",
    "view.dtype",
    "view_as_complex",
    "view_as_real",
};

bool Exists(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton()
      .findSchema({"aten::" + name.substr(0, dot), overload})
      .has_value();
}

// Returns the library in which single operators of aten get another kernel.
torch::Library* InstallFallback(torch::CppFunction&& hook) {
  // Never destroyed: operators run until the very end of the process.
  auto* all = new torch::Library(torch::Library::IMPL, "_", HookKey(), __FILE__, __LINE__);
  all->fallback(std::move(hook));
  auto* aten = new torch::Library(torch::Library::IMPL, "aten", HookKey(), __FILE__, __LINE__);
  for (const char* name : kViews) {
    if (Exists(name)) aten->impl(name, torch::CppFunction::makeFallthrough());
  }
  return aten;
}

void InstallReaders() {
  auto* fallthrough =
      new torch::Library(torch::Library::IMPL, "_", ReaderKey(), __FILE__, __LINE__);
  fallthrough->fallback(torch::CppFunction::makeFallthrough());
  auto* readers = new torch::Library(torch::Library::IMPL, "aten", ReaderKey(), __FILE__, __LINE__);
  for (const char* name : kDirectReaders) {
    // Other versions of torch may not have it.
    if (!Exists(name)) continue;
    readers->impl(name, torch::CppFunction::makeFromBoxedFunction<&HoldArguments>());
  }
}

absl::Status CheckFree(c10::DispatchKey key) {
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the dispatch key ", c10::toString(key), " is taken by another extension"));
}

}  // namespace

absl::Status InstallDispatchHook() {
  EBB_RETURN_IF_ERROR(CheckFree(HookKey()));
  EBB_RETURN_IF_ERROR(CheckFree(ReaderKey()));
  torch::Library* aten = InstallFallback(torch::CppFunction::makeFromBoxedFunction<&Hook>());
  InstallSmallCalls(aten, c10::KernelFunction::makeFromBoxedFunction<&Hook>());
  InstallReaders();
  return absl::OkStatus();
}

absl::Status InstallCountingHook() {
  EBB_RETURN_IF_ERROR(CheckFree(HookKey()));
  InstallFallback(torch::CppFunction::makeFromBoxedFunction<&Count>());
  return absl::OkStatus();
}

void ArmThread() {
  c10::impl::tls_set_dispatch_key_included(HookKey(), true);
  if (Manager::Get()->manages()) c10::impl::tls_set_dispatch_key_included(ReaderKey(), true);
}

}  // namespace ebbtide
