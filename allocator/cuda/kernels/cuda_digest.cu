// SPDX-License-Identifier: Apache-2.0
//
// Buffers are cut into tiles of 64 KiB, so that one large buffer keeps the whole GPU busy, and
// thousands of small ones do too. A thread block works on a tile, a warp on a chunk at a time, and
// a tile's sums are added to its buffer's by two atomic additions: their order does not matter,
// because it is addition modulo 2^64.

#include <algorithm>
#include <cstddef>

#include "allocator/cuda/kernels/cuda_digest.h"
#include "allocator/cuda/kernels/cuda_launch.h"
#include "allocator/cuda/kernels/digest_core.h"
#include "allocator/cuda/kernels/digest_tiles.h"
#include "base/status_macros.h"
#include "cub/block/block_reduce.cuh"
#include "cub/device/device_scan.cuh"
#include "cub/warp/warp_reduce.cuh"
#include "thrust/iterator/counting_iterator.h"
#include "thrust/iterator/transform_iterator.h"

namespace ebbtide {
namespace {

using digest_core::Sums;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / digest_core::kLanes;

__device__ constexpr digest_core::Keys kKeys = digest_core::MakeKeys();

struct Add {
  __device__ Sums operator()(Sums a, const Sums& b) const { return a += b; }
};

// The number of tiles of buffer i, and 0 after the last one, so that the scan ends with the total.
struct TilesOfBuffer {
  const DigestBuffer* buffers;
  int64_t count;

  __host__ __device__ int64_t operator()(int64_t i) const {
    return i < count ? digest_core::TileCount(buffers[i].bytes) : 0;
  }
};

// tile_starts[i] becomes the number of tiles before buffer i, for i in [0, count]. As cub wants it:
// with a null workspace it only says what size it needs.
cudaError_t NumberTiles(void* workspace, size_t* size, const DigestBuffer* buffers, int64_t count,
                        int64_t* tile_starts, cudaStream_t stream) {
  const auto tiles = thrust::make_transform_iterator(thrust::make_counting_iterator<int64_t>(0),
                                                     TilesOfBuffer{buffers, count});
  return cub::DeviceScan::ExclusiveSum(workspace, *size, tiles, tile_starts, count + 1, stream);
}

__device__ void AddTo(Digest* sums, const Sums& more) {
  // CUDA has no atomics of uint64_t where that is `unsigned long`.
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(&sums->low), more.first);
  atomicAdd(reinterpret_cast<unsigned long long*>(&sums->high), more.second);
}

// Adds every tile's sums to those of its buffer, which lie in `sums` and begin as zeros.
__global__ void __launch_bounds__(kThreads)
    AddTiles(const DigestBuffer* buffers, int64_t count, const int64_t* tile_starts, Digest* sums) {
  using WarpReduce = cub::WarpReduce<Sums>;
  using BlockReduce = cub::BlockReduce<Sums, kThreads>;
  __shared__ typename WarpReduce::TempStorage warp_storage[kWarps];
  __shared__ typename BlockReduce::TempStorage block_storage;

  const int warp = threadIdx.x / digest_core::kLanes;
  const int lane = threadIdx.x % digest_core::kLanes;
  const digest_core::LaneKeys lane_keys = digest_core::KeysOfLane(kKeys, lane);
  const int64_t tiles = tile_starts[count];
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t owner = digest_core::OwnerOfTile(tile_starts, count, tile);
    const DigestBuffer buffer = buffers[owner];
    const digest_core::ChunkRange chunks =
        digest_core::ChunksOfTile(buffer.bytes, tile - tile_starts[owner]);
    Sums mixed;  // In lane 0 of each warp.
    for (int64_t chunk = chunks.begin + warp; chunk < chunks.end; chunk += kWarps) {
      const Sums mine = digest_core::ChunkSumsOfLane(buffer, chunk, lane, lane_keys, kKeys);
      const Sums all = WarpReduce(warp_storage[warp]).Reduce(mine, Add());
      if (lane == 0) mixed += digest_core::MixChunk(all, chunk);
      __syncwarp();
    }
    const Sums tile_sums = BlockReduce(block_storage).Reduce(mixed, Add());
    if (threadIdx.x == 0) AddTo(&sums[owner], tile_sums);
    __syncthreads();  // The next round writes to the same shared memory.
  }
}

__global__ void __launch_bounds__(kThreads)
    FinishDigests(const DigestBuffer* buffers, int64_t count, Digest* digests) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  digests[i] = digest_core::Finish({digests[i].low, digests[i].high}, buffers[i].bytes);
}

// As many thread blocks as the GPU holds at once; they share the tiles among them, whose number
// the host does not know.
cudaError_t ResidentBlocks(unsigned* blocks) {
  int device = 0, processors = 0, blocks_each = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (cudaError_t error =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      error != cudaSuccess) {
    return error;
  }
  if (cudaError_t error =
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, AddTiles, kThreads, 0);
      error != cudaSuccess) {
    return error;
  }
  *blocks = static_cast<unsigned>(std::max(1, processors * blocks_each));
  return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), unsigned blocks, cudaStream_t stream,
                   Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The workspace holds tile_starts, and behind them what the scan needs.
Bytes SizeOfTileStarts(int64_t count) {
  return RoundUp(Bytes((count + 1) * static_cast<int64_t>(sizeof(int64_t))),
                 Bytes(cuda_launch::kWorkspaceAlignment));
}

}  // namespace

absl::StatusOr<Bytes> CudaDigestWorkspace(int64_t count) {
  EBB_RETURN_IF_ERROR(cuda_launch::CheckCount(count));
  if (count == 0) return Bytes(0);
  EBB_RETURN_IF_ERROR(cuda_launch::CheckDevice());
  size_t size = 0;
  EBB_RETURN_IF_ERROR(
      cuda_launch::StatusOf(NumberTiles(nullptr, &size, nullptr, count, nullptr, nullptr),
                            "asking for the size of a digest's workspace"));
  return SizeOfTileStarts(count) + Bytes(static_cast<int64_t>(size));
}

absl::Status CudaDigests(const DigestBuffer* buffers, int64_t count, Digest* digests,
                         void* workspace, Bytes workspace_size, void* stream) {
  EBB_ASSIGN_OR_RETURN(const Bytes needed, CudaDigestWorkspace(count));
  if (count == 0) return absl::OkStatus();
  if (buffers == nullptr || digests == nullptr) {
    return absl::InvalidArgumentError("no buffers, or no place for their digests");
  }
  EBB_RETURN_IF_ERROR(cuda_launch::CheckWorkspace(workspace, workspace_size, needed));
  const auto queue = static_cast<cudaStream_t>(stream);
  const Bytes starts_size = SizeOfTileStarts(count);
  auto* tile_starts = static_cast<int64_t*>(workspace);
  size_t scan_size = static_cast<size_t>((workspace_size - starts_size).count());
  unsigned blocks = 0;
  EBB_RETURN_IF_ERROR(cuda_launch::StatusOf(ResidentBlocks(&blocks), "looking at the device"));
  EBB_RETURN_IF_ERROR(
      cuda_launch::StatusOf(NumberTiles(static_cast<char*>(workspace) + starts_size.count(),
                                        &scan_size, buffers, count, tile_starts, queue),
                            "numbering tiles"));
  // The sums are formed where the digests will be.
  EBB_RETURN_IF_ERROR(cuda_launch::StatusOf(
      cudaMemsetAsync(digests, 0, static_cast<size_t>(count) * sizeof(Digest), queue),
      "clearing sums"));
  EBB_RETURN_IF_ERROR(cuda_launch::StatusOf(
      Launch(AddTiles, blocks, queue, buffers, count, tile_starts, digests), "adding tiles"));
  const auto finish_blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  return cuda_launch::StatusOf(Launch(FinishDigests, finish_blocks, queue, buffers, count, digests),
                               "finishing digests");
}

}  // namespace ebbtide
