// SPDX-License-Identifier: Apache-2.0
//
// How the buffers of a batch are cut into tiles for a GPU, and a lane's part of a chunk: all of
// what a thread of the digest kernel computes but the reductions between threads. It is compiled
// for the host too, where the tests run it without a GPU. Pure functions. Private to this folder
// and its tests.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_TILES_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_TILES_H_

#include <cstdint>

#include "allocator/cuda/kernels/digest_core.h"

namespace ebbtide::digest_core {

inline constexpr int64_t kTileChunks = 32;
inline constexpr int64_t kTileBytes = kTileChunks * kChunkBytes;

EBB_HOST_DEVICE inline int64_t TileCount(int64_t bytes) {
  return (bytes + kTileBytes - 1) / kTileBytes;
}

// The buffer that `tile` belongs to: the last i with tile_starts[i] <= tile. Buffers of no bytes
// have no tile and are never the answer. REQUIRES: 0 <= tile < tile_starts[count].
EBB_HOST_DEVICE inline int64_t OwnerOfTile(const int64_t* tile_starts, int64_t count,
                                           int64_t tile) {
  int64_t low = 0, high = count;  // tile_starts[low] <= tile < tile_starts[high]
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (tile_starts[middle] <= tile ? low : high) = middle;
  }
  return low;
}

struct ChunkRange {
  int64_t begin;
  int64_t end;
};

// The chunks of tile number `tile` of a buffer.
EBB_HOST_DEVICE inline ChunkRange ChunksOfTile(int64_t bytes, int64_t tile) {
  const int64_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  const int64_t end = (tile + 1) * kTileChunks;
  return {tile * kTileChunks, end < chunks ? end : chunks};
}

// One lane's part of the sums of a chunk of `buffer`. `lane_keys` are its part of `keys`.
EBB_HOST_DEVICE inline Sums ChunkSumsOfLane(const DigestBuffer& buffer, int64_t chunk, int lane,
                                            const LaneKeys& lane_keys, const Keys& keys) {
  const unsigned char* from =
      static_cast<const unsigned char*>(buffer.address) + chunk * kChunkBytes;
  const int64_t left = buffer.bytes - chunk * kChunkBytes;
  if (left >= kChunkBytes && reinterpret_cast<uintptr_t>(from) % kUnitBytes == 0) {
    return SumsOfLane(reinterpret_cast<const Unit*>(from), lane, lane_keys);
  }
  return SumsOfLane(from, left < kChunkBytes ? left : kChunkBytes, lane, keys);
}

}  // namespace ebbtide::digest_core

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_TILES_H_
