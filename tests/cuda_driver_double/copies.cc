// SPDX-License-Identifier: Apache-2.0
// Copies and fills. An address that the machine does not know is the host's own memory.

#include <cstring>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

uintptr_t AddressOf(const void* host) { return reinterpret_cast<uintptr_t>(host); }

// A call without a stream: queued on the legacy stream. It has ended at its return when the host
// takes part in it; between device addresses the driver need not wait.
Result CopyNow(EntryPoint entry, uintptr_t target, uintptr_t source, size_t size, CopyKind kind) {
  return Call(entry, [&](Machine& machine) {
    return QueueCopy(machine, StreamHandle::kLegacy, {target, source, size, kind}, /*wait=*/true);
  });
}

Result CopyLater(EntryPoint entry, uintptr_t target, uintptr_t source, size_t size, CopyKind kind,
                 StreamHandle stream) {
  return Call(entry, [&](Machine& machine) {
    return QueueCopy(machine, stream, {target, source, size, kind}, /*wait=*/false);
  });
}

template <typename T>
Result Fill(EntryPoint entry, DevicePointer target, T value, size_t count, StreamHandle stream) {
  return Call(entry, [&](Machine& machine) {
    if (target % sizeof(T) != 0 || count > SIZE_MAX / sizeof(T)) return Result::kInvalidValue;
    return QueueFill(machine, stream, target, &value, sizeof(T), count);
  });
}

}  // namespace

Result cuMemcpy(DevicePointer target, DevicePointer source, size_t size) {
  return CopyNow(EntryPoint::cuMemcpy, target, source, size, CopyKind::kAnyToAny);
}

Result cuMemcpyAsync(DevicePointer target, DevicePointer source, size_t size, StreamHandle stream) {
  return CopyLater(EntryPoint::cuMemcpyAsync, target, source, size, CopyKind::kAnyToAny, stream);
}

Result cuMemcpyDtoD_v2(DevicePointer target, DevicePointer source, size_t size) {
  return CopyNow(EntryPoint::cuMemcpyDtoD_v2, target, source, size, CopyKind::kDeviceToDevice);
}

Result cuMemcpyDtoDAsync_v2(DevicePointer target, DevicePointer source, size_t size,
                            StreamHandle stream) {
  return CopyLater(EntryPoint::cuMemcpyDtoDAsync_v2, target, source, size,
                   CopyKind::kDeviceToDevice, stream);
}

Result cuMemcpyHtoD_v2(DevicePointer target, const void* source, size_t size) {
  return CopyNow(EntryPoint::cuMemcpyHtoD_v2, target, AddressOf(source), size,
                 CopyKind::kHostToDevice);
}

Result cuMemcpyHtoDAsync_v2(DevicePointer target, const void* source, size_t size,
                            StreamHandle stream) {
  return CopyLater(EntryPoint::cuMemcpyHtoDAsync_v2, target, AddressOf(source), size,
                   CopyKind::kHostToDevice, stream);
}

Result cuMemcpyDtoH_v2(void* target, DevicePointer source, size_t size) {
  return CopyNow(EntryPoint::cuMemcpyDtoH_v2, AddressOf(target), source, size,
                 CopyKind::kDeviceToHost);
}

Result cuMemcpyDtoHAsync_v2(void* target, DevicePointer source, size_t size, StreamHandle stream) {
  return CopyLater(EntryPoint::cuMemcpyDtoHAsync_v2, AddressOf(target), source, size,
                   CopyKind::kDeviceToHost, stream);
}

Result cuMemcpyPeer(DevicePointer target, ContextHandle target_context, DevicePointer source,
                    ContextHandle source_context, size_t size) {
  return Call(EntryPoint::cuMemcpyPeer, [&](Machine& machine) {
    // Unlike all other copies it comes after everything on both devices.
    for (ContextHandle context : {target_context, source_context}) {
      if (!HasContext(machine, context)) return Result::kInvalidContext;
      machine.work->RunDevice(DeviceOf(machine, context));
      machine.work->LearnDevice(DeviceOf(machine, context));
    }
    return QueueCopy(machine, StreamHandle::kLegacy,
                     {target, source, size, CopyKind::kDeviceToDevice}, /*wait=*/true);
  });
}

Result cuMemcpyPeerAsync(DevicePointer target, ContextHandle target_context, DevicePointer source,
                         ContextHandle source_context, size_t size, StreamHandle stream) {
  return Call(EntryPoint::cuMemcpyPeerAsync, [&](Machine& machine) {
    if (!HasContext(machine, target_context) || !HasContext(machine, source_context)) {
      return Result::kInvalidContext;
    }
    return QueueCopy(machine, stream, {target, source, size, CopyKind::kDeviceToDevice},
                     /*wait=*/false);
  });
}

Result cuMemsetD8_v2(DevicePointer target, uint8_t value, size_t count) {
  return Fill(EntryPoint::cuMemsetD8_v2, target, value, count, StreamHandle::kLegacy);
}

Result cuMemsetD8Async(DevicePointer target, uint8_t value, size_t count, StreamHandle stream) {
  return Fill(EntryPoint::cuMemsetD8Async, target, value, count, stream);
}

Result cuMemsetD16_v2(DevicePointer target, uint16_t value, size_t count) {
  return Fill(EntryPoint::cuMemsetD16_v2, target, value, count, StreamHandle::kLegacy);
}

Result cuMemsetD16Async(DevicePointer target, uint16_t value, size_t count, StreamHandle stream) {
  return Fill(EntryPoint::cuMemsetD16Async, target, value, count, stream);
}

Result cuMemsetD32_v2(DevicePointer target, uint32_t value, size_t count) {
  return Fill(EntryPoint::cuMemsetD32_v2, target, value, count, StreamHandle::kLegacy);
}

Result cuMemsetD32Async(DevicePointer target, uint32_t value, size_t count, StreamHandle stream) {
  return Fill(EntryPoint::cuMemsetD32Async, target, value, count, stream);
}

}  // namespace ebbtide::hollow
