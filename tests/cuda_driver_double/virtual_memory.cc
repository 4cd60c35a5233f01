// SPDX-License-Identifier: Apache-2.0
// Addresses, pieces of memory, and putting the ones behind the others. Nothing here needs a current
// context, and nothing is illegal in a capture.

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

// What the double can make memory with. Errors: InvalidValue, InvalidDevice, NotSupported.
Result CheckProperties(const Machine& machine, const AllocationProperties* properties) {
  if (properties == nullptr || properties->type != AllocationType::kPinned ||
      properties->win32_meta_data != nullptr) {
    return Result::kInvalidValue;
  }
  if (properties->location.type != LocationType::kDevice) {
    return properties->location.type == LocationType::kNone ? Result::kInvalidValue
                                                            : Result::kNotSupported;
  }
  if (!IsDevice(machine, properties->location.id)) return Result::kInvalidDevice;
  switch (properties->requested_handle_types) {
    case HandleType::kNone:
    case HandleType::kPosixDescriptor:
      return Result::kSuccess;
    case HandleType::kFabric:
      return Result::kNotSupported;
  }
  return Result::kInvalidValue;
}

Result CheckDescription(const Machine& machine, const AccessDescription& description) {
  if (description.location.type != LocationType::kDevice) return Result::kInvalidValue;
  if (!IsDevice(machine, description.location.id)) return Result::kInvalidDevice;
  switch (description.flags) {
    case Access::kNone:
    case Access::kRead:
    case Access::kReadWrite:
      return Result::kSuccess;
  }
  return Result::kInvalidValue;
}

}  // namespace

Result cuMemAddressReserve(DevicePointer* start, size_t size, size_t alignment, DevicePointer hint,
                           uint64_t flags) {
  return Call(EntryPoint::cuMemAddressReserve, [&](Machine& machine) {
    if (start == nullptr || flags != 0) return Result::kInvalidValue;
    return machine.addresses->Reserve(size, alignment, hint, start);
  });
}

Result cuMemAddressFree(DevicePointer start, size_t size) {
  return Call(EntryPoint::cuMemAddressFree,
              [&](Machine& machine) { return machine.addresses->FreeReservation(start, size); });
}

Result cuMemCreate(MemoryHandle* handle, size_t size, const AllocationProperties* properties,
                   uint64_t flags) {
  return Call(EntryPoint::cuMemCreate, [&](Machine& machine) {
    if (handle == nullptr || flags != 0 || size == 0) return Result::kInvalidValue;
    if (size % machine.addresses->granularity() != 0) return Result::kInvalidValue;
    const Result checked = CheckProperties(machine, properties);
    if (checked != Result::kSuccess) return checked;
    const Device& device = machine.devices[properties->location.id];
    if (device.broken != Result::kSuccess) return device.broken;
    PhysicalHandle made;
    const Result created = PhysicalMemory::Create(
        {.device = properties->location.id,
         .bytes = size,
         .charge_bytes = size,
         .shareable = properties->requested_handle_types == HandleType::kPosixDescriptor,
         .rdma_capable = properties->gpu_direct_rdma_capable != 0,
         .account = device.account},
        &made.memory);
    if (created != Result::kSuccess) return created;
    made.references = 1;
    *handle = machine.AddHandle(std::move(made));
    return Result::kSuccess;
  });
}

Result cuMemRelease(MemoryHandle handle) {
  return Call(EntryPoint::cuMemRelease, [&](Machine& machine) {
    const auto found = machine.physical_handles.find(handle);
    if (found == machine.physical_handles.end()) return Result::kInvalidValue;
    if (--found->second.references == 0) machine.physical_handles.erase(found);
    return Result::kSuccess;
  });
}

Result cuMemMap(DevicePointer start, size_t size, size_t offset, MemoryHandle handle,
                uint64_t flags) {
  return Call(EntryPoint::cuMemMap, [&](Machine& machine) {
    const auto found = machine.physical_handles.find(handle);
    // An offset is documented, and documented to be 0 for now.
    if (flags != 0 || offset != 0 || found == machine.physical_handles.end()) {
      return Result::kInvalidValue;
    }
    return machine.addresses->Map(start, size, offset, found->second.memory);
  });
}

Result cuMemUnmap(DevicePointer start, size_t size) {
  return Call(EntryPoint::cuMemUnmap, [&](Machine& machine) {
    const Result unmapped = machine.addresses->Unmap(start, size);
    if (unmapped == Result::kSuccess) machine.LoseRange("unmap", start, size);
    return unmapped;
  });
}

Result cuMemSetAccess(DevicePointer start, size_t size, const AccessDescription* descriptions,
                      size_t count) {
  return Call(EntryPoint::cuMemSetAccess, [&](Machine& machine) {
    if (descriptions == nullptr || count == 0) return Result::kInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      const Result checked = CheckDescription(machine, descriptions[i]);
      if (checked != Result::kSuccess) return checked;
    }
    for (size_t i = 0; i < count; ++i) {
      const Result set = machine.addresses->SetAccess(start, size, descriptions[i].location.id,
                                                      descriptions[i].flags);
      if (set != Result::kSuccess) return set;
    }
    return Result::kSuccess;
  });
}

Result cuMemGetAccess(uint64_t* flags, const MemoryLocation* location, DevicePointer address) {
  return Call(EntryPoint::cuMemGetAccess, [&](Machine& machine) {
    if (flags == nullptr || location == nullptr) return Result::kInvalidValue;
    if (location->type != LocationType::kDevice) return Result::kInvalidValue;
    if (!IsDevice(machine, location->id)) return Result::kInvalidDevice;
    const View* view = machine.addresses->Find(address);
    if (view == nullptr || view->kind != ViewKind::kMapped) return Result::kInvalidValue;
    *flags = static_cast<uint64_t>(view->access[location->id]);
    return Result::kSuccess;
  });
}

Result cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties,
                                     GranularityKind kind) {
  return Call(EntryPoint::cuMemGetAllocationGranularity, [&](Machine& machine) {
    const bool known = kind == GranularityKind::kMinimum || kind == GranularityKind::kRecommended;
    if (bytes == nullptr || !known) return Result::kInvalidValue;
    const Result checked = CheckProperties(machine, properties);
    if (checked != Result::kSuccess) return checked;
    *bytes = machine.addresses->granularity();
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
