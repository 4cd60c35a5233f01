// SPDX-License-Identifier: Apache-2.0
//
// What every entry point does before and after its own work: it is counted, may be told to fail,
// finds out whether a call is possible at all (initialised, a context current, the device alive, no
// capture that forbids it), and takes the machine's lock.
//
//     Result cuDeviceGetCount(int* count) {
//       return Call(EntryPoint::cuDeviceGetCount, [&](Machine& machine) { ... });
//     }
//
// Threads: any. What a thread has of its own, its stack of contexts and its capture mode, is in
// ThreadState. Owns nothing.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CALL_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CALL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cuda_driver_double/core/machine.h"
#include "tests/cuda_driver_double/cuda_abi.h"
#include "tests/cuda_driver_double/entry_points.h"

namespace ebbtide::hollow {

enum class EntryPoint : int {
#define ENTRY(name, needs, parameters) name,
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY
};

inline constexpr int kGreatestPriority = -5;  // the least is 0

struct ThreadState {
  std::vector<int> contexts;  // the devices whose primary contexts are stacked, current last
  CaptureMode capture_mode = CaptureMode::kGlobal;
};

// The calling thread's, empty again after a reset of the machine.
ThreadState& CurrentThread(const Machine& machine);

// The device of the current context. REQUIRES: the entry point needs a context.
int CurrentDevice(const Machine& machine);

// The handle of a device's primary context, and back: -1 for what is no such handle.
ContextHandle ContextOf(int device);
int DeviceOf(const Machine& machine, ContextHandle context);

// The handle of a device's default memory pool.
PoolHandle PoolOf(int device);

inline bool IsDevice(const Machine& machine, DeviceOrdinal device) {
  return device >= 0 && device < static_cast<int>(machine.devices.size());
}

// The stream that a handle means, also a default one; null when there is none such.
std::shared_ptr<Stream> FindStream(Machine& machine, StreamHandle handle);

// Opens the legacy stream of a context that has just come to be.
void OpenLegacyStream(Machine& machine, int device);

namespace internal {

// Counts the call and waits as long as the configuration wants.
Calls::Decision Begin(EntryPoint entry);
// Whether the call can be made; the machine's lock is held.
Result Check(Machine& machine, EntryPoint entry, const Calls::Decision& decision);
void End(Machine& machine, const Calls::Decision& decision);

}  // namespace internal

template <typename Body>
Result Call(EntryPoint entry, Body&& body) {
  const Calls::Decision decision = internal::Begin(entry);
  Machine& machine = Machine::Get();
  std::lock_guard<std::mutex> lock(machine.mutex());
  Result result = internal::Check(machine, entry, decision);
  if (result == Result::kSuccess) result = std::forward<Body>(body)(machine);
  internal::End(machine, decision);
  return result;
}

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CALL_H_
