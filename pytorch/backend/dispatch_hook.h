// SPDX-License-Identifier: Apache-2.0
//
// The hook: a boxed fallback on a dispatch key that torch does not use, below autograd and above
// the backends' kernels, so that every operator passes it with its real arguments. It brings
// arguments back, runs the kernel with itself switched off, and records the call.
//
// Threads: the hook is armed per thread (a thread-local dispatch key); the shim arms threads as
// they start, autograd hands the setting on to its own. It holds no lock while a kernel runs.

#ifndef EBBTIDE_PYTORCH_BACKEND_DISPATCH_HOOK_H_
#define EBBTIDE_PYTORCH_BACKEND_DISPATCH_HOOK_H_

#include "absl/status/status.h"

namespace ebbtide {

// Registers the hook. Fails if no key is free.
absl::Status InstallDispatchHook();

// Registers a hook that counts operators and leaves them alone, for observing. Fails likewise.
absl::Status InstallCountingHook();

// Switches the hook on for the calling thread. REQUIRES: one of them is installed.
void ArmThread();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_DISPATCH_HOOK_H_
