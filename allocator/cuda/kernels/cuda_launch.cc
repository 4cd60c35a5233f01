// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/cuda_launch.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace ebbtide::cuda_launch {

absl::Status StatusOf(int error, absl::string_view what) {
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string text =
      absl::StrCat(what, ": ", cudaGetErrorName(code), ": ", cudaGetErrorString(code));
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status CheckDevice() {
  int device = 0;
  return StatusOf(cudaGetDevice(&device), "looking for the device");
}

absl::Status CheckCount(int64_t count) {
  if (count < 0 || count > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("a count of ", count));
  }
  return absl::OkStatus();
}

absl::Status CheckWorkspace(const void* workspace, Bytes size, Bytes needed) {
  if (size < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("workspace of ", size.count(), " bytes, needs ", needed.count()));
  }
  if (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the workspace's address is not a multiple of ", kWorkspaceAlignment));
  }
  return absl::OkStatus();
}

}  // namespace ebbtide::cuda_launch
