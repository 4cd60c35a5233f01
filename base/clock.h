// SPDX-License-Identifier: Apache-2.0
//
// Time that only moves forward, for measuring what calls and rebuilds cost. It has no relation to
// the calendar and is comparable within one machine since its start. Safe on any thread and in
// signal handlers; owns nothing.

#ifndef EBBTIDE_BASE_CLOCK_H_
#define EBBTIDE_BASE_CLOCK_H_

#include <time.h>

#include <chrono>

namespace ebbtide {

// The unit of every duration in Ebbtide.
using Nanos = std::chrono::nanoseconds;

// Time since an arbitrary start. About 20 ns: on Linux this is answered in user space (vDSO),
// without a system call, so that it can be called twice for each operator.
inline Nanos MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::seconds(now.tv_sec) + Nanos(now.tv_nsec);
}

// Seconds as a number, for reports.
inline double ToSeconds(Nanos duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_CLOCK_H_
