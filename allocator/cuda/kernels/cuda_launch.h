// SPDX-License-Identifier: Apache-2.0
//
// What the functions that queue GPU work share: CUDA's errors as a Status, and the checks of what
// the caller gave. Pure but for CUDA's own last error, which is a thread's own. Owns nothing.
// Private to this folder.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_LAUNCH_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"

namespace ebbtide::cuda_launch {

// The alignment of working memory: what cudaMalloc and every caching allocator give.
inline constexpr int64_t kWorkspaceAlignment = 256;

// `error` is a cudaError_t. Takes it from CUDA's last error, unless it is one that stays: the next
// launch would be blamed for it.
absl::Status StatusOf(int error, absl::string_view what);

// Whether there is a device at all. To be asked before cub is, which says "invalid device ordinal"
// where there is no driver.
absl::Status CheckDevice();

// What cub counts with, and far more than an allocator has blocks.
absl::Status CheckCount(int64_t count);

// REQUIRES: `needed` is what the work of `count` > 0 items needs.
absl::Status CheckWorkspace(const void* workspace, Bytes size, Bytes needed);

}  // namespace ebbtide::cuda_launch

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_CUDA_LAUNCH_H_
