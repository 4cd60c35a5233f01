// SPDX-License-Identifier: Apache-2.0
//
// Putting an operation on a stream, with what the driver checks at the call: the stream, the
// ranges, and what a capture allows. Copies and fills are made here.
//
// Threads: the machine's lock is held. Ownership: operations own what they need later, such as the
// bytes of pageable host memory, which the driver reads before a call returns.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_QUEUEING_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_QUEUEING_H_

#include <cstddef>
#include <cstdint>

#include "tests/cuda_driver_double/core/machine.h"
#include "tests/cuda_driver_double/cuda_abi.h"

namespace ebbtide::hollow {

enum class CopyKind { kAnyToAny, kDeviceToDevice, kHostToDevice, kDeviceToHost };

struct Copy {
  uintptr_t target;
  uintptr_t source;
  size_t size;
  CopyKind kind;
};

// Queues an operation, or adds it to the stream's capture. `ticket` may be null; it is left alone
// in a capture. Errors: CaptureImplicit, CaptureInvalidated; what the device has failed with.
Result Queue(Machine& machine, Stream& stream, Operation operation, Ticket* ticket);

// Errors: InvalidHandle for the stream, InvalidValue for ranges that are not known whole.
// With `wait` it is done at the return if the host takes part.
Result QueueCopy(Machine& machine, StreamHandle stream, const Copy& copy, bool wait);

// `count` times the `unit` bytes at `value`.
Result QueueFill(Machine& machine, StreamHandle stream, uintptr_t target, const void* value,
                 size_t unit, size_t count);

// Work of a kernel that a test announces: it only touches the range.
Result QueueTouch(Machine& machine, StreamHandle stream, const Touch& touch);

// Whether a handle names a context that is there.
bool HasContext(const Machine& machine, ContextHandle context);

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_QUEUEING_H_
