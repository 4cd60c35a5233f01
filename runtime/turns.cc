// SPDX-License-Identifier: Apache-2.0

#include "runtime/turns.h"

namespace ebbtide {
namespace {

// Of all runtimes of the process: a thread is in one call after the other, or in one inside
// another.
thread_local int64_t calls_of_thread = 0;
thread_local Nanos waited_by_call{0};  // by the outermost

}  // namespace

void Turns::Begin() {
  ++running_;
  if (calls_of_thread++ == 0) waited_by_call = Nanos(0);
}

void Turns::End() {
  --running_;
  --calls_of_thread;
  ++ends_;
  if (waiting_ > 0) ended_.SignalAll();
}

bool Turns::WaitForAnother() {
  const int64_t own = calls_of_thread;
  const int64_t seen = ends_;
  waiting_ += own;
  // Others that wait already will not end before this thread does.
  if (own > 0 && running_ > waiting_ && waited_by_call < patience_) {
    const Nanos start = MonotonicNow();
    const Nanos deadline = start + patience_ - waited_by_call;
    host_wait_.Around(&mutex_, [&] {
      for (Nanos now = start; ends_ == seen && now < deadline; now = MonotonicNow()) {
        ended_.WaitFor(&mutex_, deadline - now);
      }
    });
    waited_by_call += MonotonicNow() - start;
  }
  waiting_ -= own;
  return ends_ != seen;
}

}  // namespace ebbtide
