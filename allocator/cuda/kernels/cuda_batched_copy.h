// SPDX-License-Identifier: Apache-2.0
//
// Copies many blocks of GPU memory in one piece of work on a stream, where a call of the driver for
// each would cost more than the bytes do: cub::DeviceMemcpy::Batched, which gives large blocks to
// many thread blocks and small ones to a warp or a thread. The rules for a batch, and the same for
// host memory, are those of batched_copy.h.
//
// Streams are CUDA's (cudaStream_t or CUstream) as an opaque pointer, null for the default stream,
// so that users of this header need no CUDA. Thread safety: any thread, any time. Ownership:
// nothing is kept; all memory is the caller's, and must stay as it is until the stream has come so
// far. To replace: the tests compare with HostCopyBlocks.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_BATCHED_COPY_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_BATCHED_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/cuda/kernels/batched_copy.h"
#include "base/bytes.h"

namespace ebbtide {

// How much working memory CudaCopyBlocks needs for `count` copies; grows with the count alone.
// Errors: InvalidArgument for a count below 0 or above 2^31 - 1; those of CUDA as below.
absl::StatusOr<Bytes> CudaCopyWorkspace(int64_t count);

// Queues copies[0, count) on `stream`, which is one of the current CUDA device. The GPU reads
// `copies`, and reads and writes what they name: memory of this device, of a peer that is open to
// it, or pinned host memory. `workspace` is device memory, aligned to 256 bytes, of at least
// CudaCopyWorkspace(count); its content does not matter. REQUIRES: CheckBlockCopies is OK; it is
// the caller's to call, because `copies` may lie where the host cannot read.
// Errors: InvalidArgument for a bad count, a null pointer or too little or misaligned workspace;
// ResourceExhausted, Unavailable (no device or no driver) or Internal with CUDA's own name and text
// for its error; some of the blocks may be copied then. An error of the work itself shows where the
// caller waits for the stream.
absl::Status CudaCopyBlocks(const BlockCopy* copies, int64_t count, void* workspace,
                            Bytes workspace_size, void* stream);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_BATCHED_COPY_H_
