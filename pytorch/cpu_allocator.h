// SPDX-License-Identifier: Apache-2.0
//
// Our c10::Allocator for the CPU: what torch calls for the memory of every CPU tensor once it is
// installed. It knows torch's rules (the data pointer is its own context, a raw deleter exists,
// torch's profiler is told) and the block header; where the bytes come from is given to it as two
// functions, so that it does not know the caching allocator.
//
// Installing it replaces torch's allocator for new storages; storages made before keep theirs and
// are not managed. Threads: any. Ownership: the allocator lives as long as the process, as torch
// keeps pointers to it in every storage. To put another source of memory behind it, install
// another CpuMemory.
#ifndef EBBTIDE_PYTORCH_CPU_ALLOCATOR_H_
#define EBBTIDE_PYTORCH_CPU_ALLOCATOR_H_

#include <c10/core/Allocator.h>

#include <cstddef>
#include <string>

#include "pytorch/block_header.h"

namespace ebbtide {

struct CpuMemory {
  // Returns at least `bytes` bytes (header included) aligned to 64. Throws a c10::Error
  // (c10::OutOfMemoryError) where there are none; never returns null.
  void* (*allocate)(size_t bytes);
  // The block that starts with `header` is no longer used by torch. `header->record` is still
  // what was stored there. Must not throw. The magic has been changed already, so that a second
  // release is noticed.
  void (*release)(BlockHeader* header);
  // What is known of the block at `header`, in lines, for the report that it is damaged.
  std::string (*describe)(const BlockHeader* header);
};

// Makes torch take its CPU memory from `memory` from now on. Call once.
void InstallCpuAllocator(const CpuMemory& memory);

// A torch data pointer that owns `payload` (from InitBlock) and releases it through the installed
// CpuMemory.
c10::DataPtr MakeCpuDataPtr(void* payload);

// The deleter that tells our blocks from all others. Aborts on a block that was released before.
void ReleaseCpuBlock(void* payload);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_CPU_ALLOCATOR_H_
