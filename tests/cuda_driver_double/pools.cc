// SPDX-License-Identifier: Apache-2.0
// Memory in the order of streams. An allocation is there at once; a free takes effect when the
// stream comes to it, and the memory goes back to the device then: the pool keeps nothing, as with
// a release threshold of 0 when the stream is waited for.

#include <cstring>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

// The numbers of the driver's CUmemPool_attribute.
enum PoolAttribute : int {
  kFollowEvents = 1,
  kOpportunistic = 2,
  kInternalDependencies = 3,
  kReleaseThreshold = 4,
  kReservedCurrent = 5,
  kReservedHigh = 6,
  kUsedCurrent = 7,
  kUsedHigh = 8,
};

constexpr uintptr_t kPoolBase = 0xEBB0'0E00'0000'0000;

int DeviceOfPool(const Machine& machine, PoolHandle pool) {
  for (int device = 0; IsDevice(machine, device); ++device) {
    if (PoolOf(device) == pool) return device;
  }
  return -1;
}

Result GivePool(Machine& machine, PoolHandle* pool, DeviceOrdinal device) {
  if (pool == nullptr) return Result::kInvalidValue;
  if (!IsDevice(machine, device)) return Result::kInvalidDevice;
  *pool = PoolOf(device);
  return Result::kSuccess;
}

uint64_t UsedBytes(const Machine& machine, int device) {
  uint64_t sum = 0;
  for (const auto& [start, view] : machine.addresses->views()) {
    if (view.kind == ViewKind::kPooled && view.device() == device) sum += view.memory->charge();
  }
  return sum;
}

}  // namespace

PoolHandle PoolOf(int device) { return PoolHandle{kPoolBase + (device + 1) * 16u}; }

Result cuMemAllocAsync(DevicePointer* address, size_t size, StreamHandle handle) {
  return Call(EntryPoint::cuMemAllocAsync, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (address == nullptr || size == 0) return Result::kInvalidValue;
    // Memory of a graph's own is not here.
    if (stream->capture != nullptr) return Result::kNotSupported;
    const int device = stream->device;
    Result made = machine.Allocate(device, size, ViewKind::kPooled, address);
    if (made == Result::kOutOfMemory) {
      // The driver waits for frees that are queued before it gives up.
      machine.work->RunDevice(device);
      made = machine.Allocate(device, size, ViewKind::kPooled, address);
    }
    if (made != Result::kSuccess) return made;
    // The memory is there for what comes after this in the order of the stream.
    const Operation operation{.name = "allocation", .touches = {{*address, size, true}}};
    return Queue(machine, *stream, operation, nullptr);
  });
}

Result cuMemFreeAsync(DevicePointer address, StreamHandle handle) {
  return Call(EntryPoint::cuMemFreeAsync, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (address == 0) return Result::kSuccess;
    const View* view = machine.addresses->Find(address);
    const bool placed =
        view != nullptr && (view->kind == ViewKind::kAllocated || view->kind == ViewKind::kPooled);
    if (!placed || view->start != address || machine.freed_later.contains(view->id)) {
      return Result::kInvalidValue;
    }
    if (stream->capture != nullptr) return Result::kNotSupported;
    Operation operation{.name = "free", .touches = {{address, view->bytes, true}}};
    operation.run = [&machine, address, id = view->id, size = view->bytes] {
      machine.work->Forget(address, size);
      machine.freed_later.erase(id);
      machine.addresses->Remove(address, {ViewKind::kAllocated, ViewKind::kPooled});
      return Result::kSuccess;
    };
    const uint64_t id = view->id;
    machine.freed_later.insert(id);
    const Result queued = Queue(machine, *stream, std::move(operation), nullptr);
    if (queued != Result::kSuccess) machine.freed_later.erase(id);
    return queued;
  });
}

Result cuDeviceGetDefaultMemPool(PoolHandle* pool, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetDefaultMemPool,
              [&](Machine& machine) { return GivePool(machine, pool, device); });
}

Result cuDeviceGetMemPool(PoolHandle* pool, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetMemPool,
              [&](Machine& machine) { return GivePool(machine, pool, device); });
}

Result cuMemPoolSetAttribute(PoolHandle pool, int attribute, void* value) {
  return Call(EntryPoint::cuMemPoolSetAttribute, [&](Machine& machine) {
    const int device = DeviceOfPool(machine, pool);
    if (device < 0 || value == nullptr) return Result::kInvalidValue;
    // The only one that changes nothing here whatever it is: there is nothing to keep.
    if (attribute != kReleaseThreshold) return Result::kNotSupported;
    std::memcpy(&machine.devices[device].release_threshold_bytes, value, sizeof(uint64_t));
    return Result::kSuccess;
  });
}

Result cuMemPoolGetAttribute(PoolHandle pool, int attribute, void* value) {
  return Call(EntryPoint::cuMemPoolGetAttribute, [&](Machine& machine) {
    const int device = DeviceOfPool(machine, pool);
    if (device < 0 || value == nullptr) return Result::kInvalidValue;
    uint64_t answer = 0;
    switch (attribute) {
      case kReleaseThreshold:
        answer = machine.devices[device].release_threshold_bytes;
        break;
      case kReservedCurrent:
      case kUsedCurrent:
        answer = UsedBytes(machine, device);
        break;
      default:
        return Result::kNotSupported;
    }
    std::memcpy(value, &answer, sizeof(answer));
    return Result::kSuccess;
  });
}

Result cuMemPoolTrimTo(PoolHandle pool, size_t /*bytes_to_keep*/) {
  return Call(EntryPoint::cuMemPoolTrimTo, [&](Machine& machine) {
    // Nothing is ever kept, so there is nothing to trim.
    return DeviceOfPool(machine, pool) < 0 ? Result::kInvalidValue : Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
