// SPDX-License-Identifier: Apache-2.0
#include "pytorch/exit_hook.h"

#include <cstdlib>

#include <atomic>

namespace ebbtide {
namespace {

std::atomic<void (*)()> g_hook{nullptr};

}  // namespace

void RunExitHook() {
  if (void (*hook)() = g_hook.exchange(nullptr)) hook();
}

void SetExitHook(void (*hook)()) {
  g_hook.store(hook);
  // Where the table of exit functions is full there is no summary; nothing else depends on it.
  (void)std::atexit(&RunExitHook);
}

}  // namespace ebbtide
