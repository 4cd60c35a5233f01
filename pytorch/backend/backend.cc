// SPDX-License-Identifier: Apache-2.0
//
// The entry of a backend: called by the preload shim right after torch has been loaded.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status_macros.h"
#include "pytorch/backend/dispatch_hook.h"
#include "pytorch/backend/exit_report.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/late_threads.h"
#include "pytorch/backend/manager.h"
#include "pytorch/backend/python_dispatch.h"
#include "pytorch/exit_hook.h"
#include "pytorch/python_hooks.h"
#include "pytorch/shim/shim_api.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

ProcessFacts* facts = nullptr;
const EbbtideShimApi* shim = nullptr;
std::atomic<bool> armed{false};

// Nothing can read a storage unseen any more: the calling thread and all that start from now on are
// managed.
void StartManaging() {
  Manager* manager = Manager::Get();
  manager->AllowEvictions();
  armed.store(true);
  ArmThread();
  if (shim->unarmed_threads() > 0) ArmThreadsAtFirstOperator(shim->on_compute_worker);
  const Bytes budget = manager->allocator().budget();
  EBB_INFO("managing cpu, budget %s, torch %s",
           budget == Bytes::Max() ? "none" : FormatBytes(budget), facts->torch_version);
}

void OnPythonReady(const absl::Status& status) {
  if (status.ok()) {
    KeepHookInPythonDispatch();
    StartManaging();
  } else {
    Manager::Get()->GiveUp();
    const bool strict = Manager::Get()->options().strict;
    EBB_WARN("%s; %s", status.message(),
             strict ? "stopping, as EBBTIDE_STRICT asks" : "the program runs unmanaged");
    if (strict) _exit(2);
  }
}

void ArmStartedThread() {
  if (armed.load(std::memory_order_relaxed)) ArmThread();
}

void PublishHooks(const EbbtideShimApi& api, const CowHandlers& cow) {
  EbbtideBackendHooks hooks = {};
  hooks.size = sizeof(hooks);
  hooks.arm_thread = &ArmStartedThread;
  hooks.is_cow = cow.is_cow;
  hooks.materialize = cow.materialize;
  hooks.before_lazy_clone = cow.before_lazy_clone;
  hooks.before_tensor_access = cow.before_tensor_access;
  api.publish(&hooks);
}

// Counts operators. If another extension has the key, they are not counted.
void StartObserving(const EbbtideShimApi& api) {
  EBB_INFO("observing cpu, no budget, torch %s", facts->torch_version);
  const absl::Status counting = InstallCountingHook();
  if (!counting.ok()) {
    EBB_INFO("operators are not counted: %s", counting.message());
    return;
  }
  PublishHooks(api, CowHandlers{});
  if (api.in_python != 0) KeepHookInPythonDispatch();
  armed.store(true);
  ArmThread();
}

// What evictions need, once torch has our allocator.
absl::Status PrepareEvictions(const EbbtideShimApi& api) {
  PublishHooks(api, GetCowHandlers());
  SetComputeWorkerTest(api.on_compute_worker);
  EBB_RETURN_IF_ERROR(CheckStorageSwap());
  InstallSwapCallbacks(MakeSwapCallbacks());
  EBB_RETURN_IF_ERROR(InstallDispatchHook());
  if (api.in_python == 0) {
    StartManaging();
    return absl::OkStatus();
  }
  PythonHookCallbacks callbacks = MakePythonHookCallbacks();
  callbacks.ready = &OnPythonReady;
  return StartPythonHooks(callbacks);
}

absl::Status StartBackend(const EbbtideShimApi& api) {
  EBB_ASSIGN_OR_RETURN(const Options options,
                       LoadOptions([](const char* name) { return std::getenv(name); }));
  EBB_RETURN_IF_ERROR(
      InitLog({.level = options.log, .quiet = options.quiet, .log_file = options.log_file}));
  shim = &api;
  facts = new ProcessFacts{.torch_version = api.torch_version, .started = MonotonicNow()};
  EBB_RETURN_IF_ERROR(Manager::Start(options));
  SetExitHook([] { WriteExitReport(*Manager::Get(), *facts); });
  if (!Manager::Get()->manages()) {
    StartObserving(api);
    return absl::OkStatus();
  }
  const absl::Status prepared = PrepareEvictions(api);
  if (!prepared.ok()) Manager::Get()->GiveUp();
  return prepared;
}

}  // namespace
}  // namespace ebbtide

extern "C" __attribute__((visibility("default"))) int ebbtide_backend_start(
    const EbbtideShimApi* api) {
  absl::Status status;
  if (api->abi != EBBTIDE_SHIM_ABI || api->size < sizeof(EbbtideShimApi)) {
    status = absl::FailedPreconditionError("the preload shim is of another version");
  } else {
    status = ebbtide::StartBackend(*api);
  }
  if (status.ok()) return 0;
  std::snprintf(api->reason, api->reason_bytes, "%s", std::string(status.message()).c_str());
  return 1;
}
