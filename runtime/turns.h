// SPDX-License-Identifier: Apache-2.0
//
// Turns lets threads take turns where memory is too short for what their calls need at once: a call
// that runs out of memory waits until a call of another thread has ended, and what that had pinned
// can leave, instead of failing. It fails when all others that run a call wait as well, and when it
// has waited for long: others may go on for ever without leaving room, or wait for this thread in a
// way that nobody here sees.
//
// Threads: the caller's mutex guards it. Ownership: none.

#ifndef EBBTIDE_RUNTIME_TURNS_H_
#define EBBTIDE_RUNTIME_TURNS_H_

#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"
#include "rematerializer/host_wait.h"

namespace ebbtide {

class Turns {
 public:
  // `patience`: how long one call waits in all. `mutex` must outlive this.
  Turns(Mutex* mutex, const HostWait& host_wait, Nanos patience)
      : mutex_(*mutex), host_wait_(host_wait), patience_(patience) {}

  // A call of this thread begins and ends. Calls may nest.
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Waits until a call of another thread has ended: true. False when that will not happen, the
  // patience is at its end, or this thread runs no call.
  bool WaitForAnother() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  Mutex& mutex_;
  const HostWait host_wait_;
  const Nanos patience_;
  CondVar ended_;
  int64_t running_ = 0;  // calls that have begun and not ended
  int64_t waiting_ = 0;  // of these, calls of threads that wait here
  int64_t ends_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_RUNTIME_TURNS_H_
