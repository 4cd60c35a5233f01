// SPDX-License-Identifier: Apache-2.0
//
// One function that runs when the process ends in good order: after main, exit() or an uncaught
// Python exception; not after _exit() or a signal. In a Python program it runs while the
// interpreter still stands (python_hooks.h calls RunExitHook from Python's own atexit), otherwise
// from C's atexit; whichever comes first.
//
// Threads: any. A child of fork runs it, too, unless the hook looks at the process id. To do more
// at the end, do it in the one hook.
#ifndef EBBTIDE_PYTORCH_EXIT_HOOK_H_
#define EBBTIDE_PYTORCH_EXIT_HOOK_H_

namespace ebbtide {

// Sets the hook and registers it. Call once. The hook must not throw.
void SetExitHook(void (*hook)());

// Runs the hook unless it has run in this process.
void RunExitHook();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_EXIT_HOOK_H_
