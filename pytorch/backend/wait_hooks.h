// SPDX-License-Identifier: Apache-2.0
//
// Lets go of Python's interpreter lock around a wait for another thread, which may need it to get
// there. Does nothing in a process without Python and on a thread that does not hold the lock.
//
// Threads: any; the token belongs to the thread that got it. Ownership: every LetGoOfInterpreter is
// followed by one TakeInterpreterBack on the same thread. Installed as the HostWait of
// RuntimeConfig; a host in another language would install its own pair.

#ifndef EBBTIDE_PYTORCH_BACKEND_WAIT_HOOKS_H_
#define EBBTIDE_PYTORCH_BACKEND_WAIT_HOOKS_H_

namespace ebbtide {

// Returns what TakeInterpreterBack needs; null if there was nothing to let go of.
void* LetGoOfInterpreter();
void TakeInterpreterBack(void* token);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_WAIT_HOOKS_H_
