// SPDX-License-Identifier: Apache-2.0
//
// HostWait is how a thread waits for another one inside a host: what the host holds on this thread
// and the other may need, such as an interpreter's lock, is let go of meanwhile.
//
// Threads: a plain value that does not change. Ownership: none.

#ifndef EBBTIDE_REMATERIALIZER_HOST_WAIT_H_
#define EBBTIDE_REMATERIALIZER_HOST_WAIT_H_

#include "absl/functional/function_ref.h"
#include "base/mutex.h"

namespace ebbtide {

struct HostWait {
  // Called before and after, without the mutex; `before` returns what `after` is given. Both may be
  // null.
  void* (*before)() = nullptr;
  void (*after)(void* token) = nullptr;

  // Calls `wait`, which waits for a signal with `mutex`.
  void Around(Mutex* mutex, absl::FunctionRef<void()> wait) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    void* token = nullptr;
    if (before != nullptr) {
      mutex->Unlock();
      token = before();
      mutex->Lock();
    }
    wait();
    if (after != nullptr) {
      mutex->Unlock();
      after(token);
      mutex->Lock();
    }
  }
};

}  // namespace ebbtide

#endif  // EBBTIDE_REMATERIALIZER_HOST_WAIT_H_
