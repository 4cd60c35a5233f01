// SPDX-License-Identifier: Apache-2.0
//
// HostMemory is the DeviceMemory of the processor: anonymous private mappings, for CPU tensors.
// Memory that is not committed has no access rights, so that a stale pointer into memory that was
// given back stops the program instead of reading zeros, and so that the kernel builds a huge page
// only where all of it is committed. Pages appear on first touch; where the kernel allows it
// (transparent_hugepage = madvise or always) they appear 2 MiB at a time.
//
// Thread-safe: it holds no state. To replace: see device_memory.h.

#ifndef EBBTIDE_ALLOCATOR_HOST_MEMORY_H_
#define EBBTIDE_ALLOCATOR_HOST_MEMORY_H_

#include "allocator/device_memory.h"

namespace ebbtide {

class HostMemory : public DeviceMemory {
 public:
  Bytes granularity() const override;     // the processor's page, 4 KiB on most
  Bytes preferred_unit() const override;  // 2 MiB
  bool supports_partial_decommit() const override { return true; }
  absl::StatusOr<void*> Reserve(Bytes size) override;
  using DeviceMemory::Commit;
  absl::Status Commit(void* address, Bytes size, Bytes piece) override;
  absl::Status Decommit(void* address, Bytes size) override;
  absl::Status Unreserve(void* address, Bytes size) override;
  Bytes capacity() const override;  // memory and swap of the machine
  bool is_host_accessible() const override { return true; }
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HOST_MEMORY_H_
