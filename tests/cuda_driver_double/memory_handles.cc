// SPDX-License-Identifier: Apache-2.0
// Handles of pieces of memory: what they are, getting one back from an address, and passing them to
// other processes as file descriptors.

#include <fcntl.h>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {

Result cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties,
                                              MemoryHandle handle) {
  return Call(EntryPoint::cuMemGetAllocationPropertiesFromHandle, [&](Machine& machine) {
    const auto found = machine.physical_handles.find(handle);
    if (properties == nullptr || found == machine.physical_handles.end()) {
      return Result::kInvalidValue;
    }
    const PhysicalMemory& memory = *found->second.memory;
    *properties = AllocationProperties();
    properties->type = AllocationType::kPinned;
    properties->location = {LocationType::kDevice, memory.device()};
    properties->requested_handle_types =
        memory.shareable() ? HandleType::kPosixDescriptor : HandleType::kNone;
    properties->gpu_direct_rdma_capable = memory.rdma_capable() ? 1 : 0;
    return Result::kSuccess;
  });
}

Result cuMemRetainAllocationHandle(MemoryHandle* handle, void* address) {
  return Call(EntryPoint::cuMemRetainAllocationHandle, [&](Machine& machine) {
    const View* view = machine.addresses->Find(reinterpret_cast<uintptr_t>(address));
    if (handle == nullptr || view == nullptr || view->kind != ViewKind::kMapped) {
      return Result::kInvalidValue;
    }
    *handle = machine.RetainHandle(view->memory);
    return Result::kSuccess;
  });
}

Result cuMemExportToShareableHandle(void* shareable, MemoryHandle handle, HandleType type,
                                    uint64_t flags) {
  return Call(EntryPoint::cuMemExportToShareableHandle, [&](Machine& machine) {
    const auto found = machine.physical_handles.find(handle);
    if (shareable == nullptr || flags != 0 || found == machine.physical_handles.end()) {
      return Result::kInvalidValue;
    }
    // It must have been made for this.
    if (type != HandleType::kPosixDescriptor || !found->second.memory->shareable()) {
      return Result::kInvalidValue;
    }
    const int descriptor = fcntl(found->second.memory->descriptor(), F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return Result::kOperatingSystem;
    *static_cast<int*>(shareable) = descriptor;
    return Result::kSuccess;
  });
}

Result cuMemImportFromShareableHandle(MemoryHandle* handle, void* shareable, HandleType type) {
  return Call(EntryPoint::cuMemImportFromShareableHandle, [&](Machine& machine) {
    if (handle == nullptr || type != HandleType::kPosixDescriptor) return Result::kInvalidValue;
    PhysicalHandle made;
    // The descriptor itself is passed where a pointer would be.
    const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
    const Result imported = PhysicalMemory::Import(descriptor, &made.memory);
    if (imported != Result::kSuccess) return imported;
    if (!IsDevice(machine, made.memory->device())) return Result::kInvalidDevice;
    made.references = 1;
    *handle = machine.AddHandle(std::move(made));
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
