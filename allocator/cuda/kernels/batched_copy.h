// SPDX-License-Identifier: Apache-2.0
//
// Copies many blocks at once, for when the allocator moves bytes that are in use. This is the host
// memory side; cuda_batched_copy.h is the same on a GPU, as one piece of work on a stream instead
// of a call of the driver for each block.
//
// The copies of one batch have no order, so no byte may be written that another copy of the batch,
// or the same one, reads or writes. Sources may overlap one another. Whoever slides blocks over
// their own old places does it in several batches, or by way of other memory. CheckBlockCopies says
// whether a batch keeps the rule.
//
// Thread safety: any thread, any time, as far as the memory itself allows; nothing is owned.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_BATCHED_COPY_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_BATCHED_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ebbtide {

// `bytes` >= 0 bytes at any addresses; with 0 bytes neither address matters. The layout is shared
// with GPU code.
struct BlockCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
};

// Copies memory that this process can read and write. REQUIRES: CheckBlockCopies is OK.
void HostCopyBlocks(const BlockCopy* copies, int64_t count);

// Whether `copies` may be one batch, in O(n log n). Reads the addresses only, so it serves device
// memory as well.
// Errors: InvalidArgument, with the places in `copies`, for a negative size, a null address, a
// block that runs over the end of the address space, or a byte written that is also read or
// written by another or the same copy.
absl::Status CheckBlockCopies(absl::Span<const BlockCopy> copies);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_BATCHED_COPY_H_
