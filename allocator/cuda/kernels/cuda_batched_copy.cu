// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/cuda_batched_copy.h"

#include <cstddef>

#include "allocator/cuda/kernels/cuda_launch.h"
#include "base/status_macros.h"
#include "cub/device/device_memcpy.cuh"
#include "thrust/iterator/transform_iterator.h"

namespace ebbtide {
namespace {

struct From {
  __host__ __device__ const void* operator()(const BlockCopy& copy) const { return copy.from; }
};
struct To {
  __host__ __device__ void* operator()(const BlockCopy& copy) const { return copy.to; }
};
struct Size {
  __host__ __device__ size_t operator()(const BlockCopy& copy) const {
    return static_cast<size_t>(copy.bytes);
  }
};

// As cub wants it: with a null workspace it only says what size it needs.
cudaError_t Batched(void* workspace, size_t* size, const BlockCopy* copies, int64_t count,
                    cudaStream_t stream) {
  return cub::DeviceMemcpy::Batched(workspace, *size,
                                    thrust::make_transform_iterator(copies, From()),
                                    thrust::make_transform_iterator(copies, To()),
                                    thrust::make_transform_iterator(copies, Size()), count, stream);
}

}  // namespace

absl::StatusOr<Bytes> CudaCopyWorkspace(int64_t count) {
  EBB_RETURN_IF_ERROR(cuda_launch::CheckCount(count));
  if (count == 0) return Bytes(0);
  EBB_RETURN_IF_ERROR(cuda_launch::CheckDevice());
  size_t size = 0;
  EBB_RETURN_IF_ERROR(cuda_launch::StatusOf(Batched(nullptr, &size, nullptr, count, nullptr),
                                            "asking for the size of a batched copy's workspace"));
  return Bytes(static_cast<int64_t>(size));
}

absl::Status CudaCopyBlocks(const BlockCopy* copies, int64_t count, void* workspace,
                            Bytes workspace_size, void* stream) {
  EBB_ASSIGN_OR_RETURN(const Bytes needed, CudaCopyWorkspace(count));
  if (count == 0) return absl::OkStatus();
  if (copies == nullptr) return absl::InvalidArgumentError("no copies");
  EBB_RETURN_IF_ERROR(cuda_launch::CheckWorkspace(workspace, workspace_size, needed));
  size_t size = static_cast<size_t>(workspace_size.count());
  return cuda_launch::StatusOf(
      Batched(workspace, &size, copies, count, static_cast<cudaStream_t>(stream)), "batched copy");
}

}  // namespace ebbtide
