// SPDX-License-Identifier: Apache-2.0
// Memory that comes with its addresses: of devices, and pinned of the host.

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/core/pages.h"

namespace ebbtide::hollow {
namespace {

// Whether the range overlaps one that is registered already.
bool IsRegistered(const Machine& machine, uintptr_t start, size_t size) {
  const auto next = machine.registered_host.lower_bound(start + size);
  if (next == machine.registered_host.begin()) return false;
  const auto& [first, bytes] = *std::prev(next);
  return first + bytes > start;
}

// Drivers wait for the devices before they take memory back, and say that they need not. With the
// setting free_waits=0 the double does not.
void WaitBeforeFree(Machine& machine) {
  if (!machine.configuration().free_waits) return;
  machine.work->RunAll();
  for (int device = 0; IsDevice(machine, device); ++device) machine.work->LearnDevice(device);
}

Result AllocateHost(Machine& machine, void** address, size_t size) {
  if (address == nullptr || size == 0) return Result::kInvalidValue;
  std::shared_ptr<PhysicalMemory> memory;
  const Result created = PhysicalMemory::Create({.bytes = PageRoundUp(size)}, &memory);
  if (created != Result::kSuccess) return created;
  std::vector<int> all;
  for (int device = 0; IsDevice(machine, device); ++device) all.push_back(device);
  uintptr_t start = 0;
  const Result placed =
      machine.addresses->Place(ViewKind::kPinnedHost, size, std::move(memory), all, &start);
  *address = reinterpret_cast<void*>(start);
  return placed;
}

}  // namespace

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  return Call(EntryPoint::cuMemGetInfo_v2, [&](Machine& machine) {
    if (free == nullptr || total == nullptr) return Result::kInvalidValue;
    const MemoryAccount& account = *machine.devices[CurrentDevice(machine)].account;
    *total = account.capacity;
    *free = account.capacity > account.used ? account.capacity - account.used : 0;
    return Result::kSuccess;
  });
}

Result cuMemAlloc_v2(DevicePointer* address, size_t size) {
  return Call(EntryPoint::cuMemAlloc_v2, [&](Machine& machine) {
    if (address == nullptr || size == 0) return Result::kInvalidValue;
    return machine.Allocate(CurrentDevice(machine), size, ViewKind::kAllocated, address);
  });
}

Result cuMemFree_v2(DevicePointer address) {
  return Call(EntryPoint::cuMemFree_v2, [&](Machine& machine) {
    if (address == 0) return Result::kSuccess;
    const View* view = machine.addresses->Find(address);
    const bool placed =
        view != nullptr && (view->kind == ViewKind::kAllocated || view->kind == ViewKind::kPooled);
    if (!placed || view->start != address) return Result::kInvalidValue;
    const int device = view->device();
    if (view->kind == ViewKind::kAllocated) WaitBeforeFree(machine);
    machine.LoseRange("free", address, view->bytes);
    machine.addresses->Remove(address, {ViewKind::kAllocated, ViewKind::kPooled});
    return machine.devices[device].broken;
  });
}

Result cuMemGetAddressRange_v2(DevicePointer* base, size_t* size, DevicePointer address) {
  return Call(EntryPoint::cuMemGetAddressRange_v2, [&](Machine& machine) {
    const View* view = machine.addresses->Find(address);
    if (view == nullptr) return Result::kNotFound;
    if (base != nullptr) *base = view->start;
    if (size != nullptr) *size = view->bytes;
    return Result::kSuccess;
  });
}

Result cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  return Call(EntryPoint::cuMemHostAlloc, [&](Machine& machine) {
    if (flags > kHostAllocFlagsAll) return Result::kInvalidValue;
    return AllocateHost(machine, address, size);
  });
}

Result cuMemAllocHost_v2(void** address, size_t size) {
  return Call(EntryPoint::cuMemAllocHost_v2,
              [&](Machine& machine) { return AllocateHost(machine, address, size); });
}

Result cuMemFreeHost(void* address) {
  return Call(EntryPoint::cuMemFreeHost, [&](Machine& machine) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    const View* view = machine.addresses->Find(start);
    if (view == nullptr || view->kind != ViewKind::kPinnedHost || view->start != start) {
      return Result::kInvalidValue;
    }
    WaitBeforeFree(machine);
    machine.LoseRange("free", start, view->bytes);
    machine.addresses->Remove(start, {ViewKind::kPinnedHost});
    return Result::kSuccess;
  });
}

Result cuMemHostGetDevicePointer_v2(DevicePointer* address, void* host, unsigned flags) {
  return Call(EntryPoint::cuMemHostGetDevicePointer_v2, [&](Machine& machine) {
    const auto start = reinterpret_cast<uintptr_t>(host);
    const View* view = machine.addresses->Find(start);
    const bool pinned = view != nullptr && view->kind == ViewKind::kPinnedHost;
    if (address == nullptr || flags != 0 || (!pinned && !IsRegistered(machine, start, 1))) {
      return Result::kInvalidValue;
    }
    *address = start;
    return Result::kSuccess;
  });
}

Result cuMemHostRegister_v2(void* address, size_t size, unsigned flags) {
  return Call(EntryPoint::cuMemHostRegister_v2, [&](Machine& machine) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    if (address == nullptr || size == 0 || flags > kHostRegisterFlagsAll) {
      return Result::kInvalidValue;
    }
    if (IsRegistered(machine, start, size)) return Result::kHostMemoryAlreadyRegistered;
    if (machine.addresses->Find(start) != nullptr) return Result::kInvalidValue;
    machine.registered_host[start] = size;
    return Result::kSuccess;
  });
}

Result cuMemHostUnregister(void* address) {
  return Call(EntryPoint::cuMemHostUnregister, [&](Machine& machine) {
    const auto found = machine.registered_host.find(reinterpret_cast<uintptr_t>(address));
    if (found == machine.registered_host.end()) return Result::kHostMemoryNotRegistered;
    WaitBeforeFree(machine);
    machine.LoseRange("unregistering", found->first, found->second);
    machine.registered_host.erase(found);
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
