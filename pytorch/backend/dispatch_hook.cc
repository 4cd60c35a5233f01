// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/dispatch_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "pytorch/backend/collectives.h"
#include "pytorch/backend/dispatch_key.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/hooked_call.h"
#include "pytorch/backend/manager.h"

namespace ebbtide {

namespace {

void Hook(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, HookKey());
  Manager* manager = Manager::Get();
  ReleaseKernelHolds();
  PollCollectives(manager);
  HookedCall(manager, op, below, stack).Run();
}

}  // namespace

absl::Status InstallDispatchHook() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(HookKey())) {
    return absl::UnavailableError("the dispatch key Fake is taken by another extension");
  }
  // Never destroyed: operators run until the very end of the process.
  auto* library = new torch::Library(torch::Library::IMPL, "_", HookKey(), __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&Hook>());
  return absl::OkStatus();
}

void ArmThread() { c10::impl::tls_set_dispatch_key_included(HookKey(), true); }

}  // namespace ebbtide
