// SPDX-License-Identifier: Apache-2.0
//
// Digests of many buffers in GPU memory at once: the same values that HostDigests of digest.h gives
// for the same content. The work is queued on a stream, as five operations whatever the number of
// buffers and their sizes.
//
// A buffer that begins at a multiple of 16 bytes, as all of an allocator's blocks do, is read at
// the speed of memory; any other is read byte by byte.
//
// Streams are CUDA's (cudaStream_t or CUstream) as an opaque pointer, null for the default stream,
// so that users of this header need no CUDA. Thread safety: any thread, any time. Ownership:
// nothing is kept; all memory is the caller's, and must stay as it is until the stream has come so
// far. To replace: the tests compare with HostDigests.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_DIGEST_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_DIGEST_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/cuda/kernels/digest.h"
#include "base/bytes.h"

namespace ebbtide {

// How much working memory CudaDigests needs for `count` buffers; grows with the count alone.
// Errors: InvalidArgument for a count below 0 or above 2^31 - 1; those of CUDA as below.
absl::StatusOr<Bytes> CudaDigestWorkspace(int64_t count);

// Queues the digests of buffers[0, count) into digests[0, count) on `stream`, which is one of the
// current CUDA device. The GPU reads `buffers` and writes `digests`: both lie in memory of this
// device, or in pinned host memory. `workspace` is device memory, aligned to 256 bytes, of at least
// CudaDigestWorkspace(count); its content does not matter. REQUIRES: no size is negative.
// Errors: InvalidArgument for a bad count, a null pointer or too little or misaligned workspace;
// ResourceExhausted, Unavailable (no device or no driver) or Internal with CUDA's own name and text
// for its error. Nothing can be said about `digests` after an error. An error of the work itself
// shows where the caller waits for the stream.
absl::Status CudaDigests(const DigestBuffer* buffers, int64_t count, Digest* digests,
                         void* workspace, Bytes workspace_size, void* stream);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_DIGEST_H_
