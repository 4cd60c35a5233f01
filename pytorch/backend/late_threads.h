// SPDX-License-Identifier: Apache-2.0
//
// Threads that were running before torch was loaded. The shim could not arm them when they started,
// and nobody can arm another thread, so a callback of torch's own profiler interface does it when
// such a thread calls its first operator. That operator does not pass the hook any more; its
// arguments are brought back here, and count as written.
//
// The callback costs every operator of the process about 0.1 us and is registered only if such
// threads exist. Safe on any thread.

#ifndef EBBTIDE_PYTORCH_BACKEND_LATE_THREADS_H_
#define EBBTIDE_PYTORCH_BACKEND_LATE_THREADS_H_

namespace ebbtide {

// `on_compute_worker` tells threads that compute a part of another thread's operator: they stay as
// they are. REQUIRES: InstallDispatchHook succeeded. Call once.
void ArmThreadsAtFirstOperator(int (*on_compute_worker)());

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_LATE_THREADS_H_
