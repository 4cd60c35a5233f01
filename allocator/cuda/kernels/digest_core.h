// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of digests, compiled for the host and for the GPU alike, so that the two cannot
// drift apart. Three levels, each a sum that may be formed in any order:
//
//     word    8 bytes, little-endian, the last one filled up with zeros
//     chunk   256 words. Word j adds (low + key) * (high + key') to each of two sums, all of 32
//             bits and the product of 64: NH of UMAC, the second sum with the keys one word further
//     buffer  the sum over its chunks of the chunk's two sums, mixed with the chunk's number
//
// The digest is the buffer's sum mixed with its length. Mixing is a bijection of 128 bits for each
// number, so that a chunk whose sums differ changes the digest for certain if it is the only one.
//
// Why one other half of a word always shows: if only `high` changes, the sums change by
// d * (low + key) with 0 < |d| < 2^32, which is 0 modulo 2^64 only where low + key = 0 modulo 2^32.
// The two sums have different keys there (KeysDiffer), so that at most one of them can be blind.
// Likewise for `low`.
//
// All functions are pure. Private to this folder and its tests.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_CORE_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_CORE_H_

#include <bit>
#include <cstdint>

#include "allocator/cuda/kernels/digest.h"

#ifdef __CUDACC__
#define EBB_HOST_DEVICE __host__ __device__
#else
#define EBB_HOST_DEVICE
#endif

namespace ebbtide::digest_core {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

inline constexpr int kWordBytes = 8;
inline constexpr int kChunkWords = 256;
inline constexpr int64_t kChunkBytes = kChunkWords * kWordBytes;

// How a warp of a GPU divides a chunk: it reads units of 16 bytes, lane after lane.
inline constexpr int kLanes = 32;
inline constexpr int kUnitWords = 2;
inline constexpr int kUnitBytes = kUnitWords * kWordBytes;
inline constexpr int kUnitsPerLane = kChunkWords / kUnitWords / kLanes;

struct Sums {
  uint64_t first = 0;
  uint64_t second = 0;

  EBB_HOST_DEVICE Sums& operator+=(const Sums& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), a bijection.
EBB_HOST_DEVICE constexpr uint64_t Scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 2^64 divided by the golden ratio, made odd: the step of splitmix64.
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

struct Keys {
  uint64_t words[kChunkWords + 1];
};

// The output of splitmix64 from seed 0.
constexpr Keys MakeKeys() {
  Keys keys{};
  for (int j = 0; j <= kChunkWords; ++j) keys.words[j] = Scramble((j + 1) * kGolden);
  return keys;
}

constexpr bool KeysDiffer(const Keys& keys) {
  for (int j = 0; j < kChunkWords; ++j) {
    const uint64_t difference = keys.words[j] ^ keys.words[j + 1];
    if (difference >> 32 == 0 || static_cast<uint32_t>(difference) == 0) return false;
  }
  return true;
}
static_assert(KeysDiffer(MakeKeys()));

// (low + key) * (high + key'), the sums in 32 bits.
EBB_HOST_DEVICE inline uint64_t KeyedProduct(uint64_t word, uint64_t key) {
  const uint32_t low = static_cast<uint32_t>(word) + static_cast<uint32_t>(key);
  const uint32_t high = static_cast<uint32_t>(word >> 32) + static_cast<uint32_t>(key >> 32);
#ifdef __CUDA_ARCH__
  // One instruction. Left to itself, nvcc makes a multiplication of 64 by 64 bits of it.
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(low), "r"(high));
  return product;
#else
  return static_cast<uint64_t>(low) * high;
#endif
}

// Adds word j of a chunk; `key` and `next_key` are the keys j and j + 1.
EBB_HOST_DEVICE inline void AddWord(uint64_t word, uint64_t key, uint64_t next_key, Sums* sums) {
  sums->first += KeyedProduct(word, key);
  sums->second += KeyedProduct(word, next_key);
}

// The word made of `bytes` (at least 1; more than 8 count as 8) at `from`, at any alignment.
EBB_HOST_DEVICE inline uint64_t LoadWord(const unsigned char* from, int64_t bytes) {
  uint64_t word = 0;
  for (int i = 0; i < kWordBytes && i < bytes; ++i) {
    word |= static_cast<uint64_t>(from[i]) << (8 * i);
  }
  return word;
}

// Mixes `sums` with `number`: for each number a bijection, and for given sums no two numbers give
// the same.
EBB_HOST_DEVICE inline Sums Mix(Sums sums, uint64_t number) {
  sums.first = Scramble(sums.first + number * kGolden);
  sums.second = Scramble(sums.second ^ sums.first);
  sums.first ^= Scramble(sums.second + kGolden);
  return sums;
}

// What chunk `index` of a buffer adds to the buffer's sums.
EBB_HOST_DEVICE inline Sums MixChunk(Sums chunk_sums, int64_t index) {
  return Mix(chunk_sums, static_cast<uint64_t>(index) + 1);
}

EBB_HOST_DEVICE inline Digest Finish(Sums buffer_sums, int64_t bytes) {
  // No chunk has such a high number: the mixing of a length is another one.
  const Sums mixed = Mix(buffer_sums, ~static_cast<uint64_t>(bytes));
  return {mixed.first, mixed.second};
}

// A lane's share of the keys.
struct LaneKeys {
  uint64_t words[kUnitsPerLane][kUnitWords + 1];
};

EBB_HOST_DEVICE inline LaneKeys KeysOfLane(const Keys& keys, int lane) {
  LaneKeys mine;
  for (int i = 0; i < kUnitsPerLane; ++i) {
    for (int j = 0; j <= kUnitWords; ++j) {
      mine.words[i][j] = keys.words[(lane + i * kLanes) * kUnitWords + j];
    }
  }
  return mine;
}

struct alignas(kUnitBytes) Unit {
  uint64_t words[kUnitWords];
};

// A lane's share of the sums of a whole chunk that is aligned to a unit.
EBB_HOST_DEVICE inline Sums SumsOfLane(const Unit* chunk, int lane, const LaneKeys& keys) {
  Unit units[kUnitsPerLane];  // All reads are on their way before the first result is needed.
  for (int i = 0; i < kUnitsPerLane; ++i) units[i] = chunk[lane + i * kLanes];
  Sums sums;
  for (int i = 0; i < kUnitsPerLane; ++i) {
    for (int j = 0; j < kUnitWords; ++j) {
      AddWord(units[i].words[j], keys.words[i][j], keys.words[i][j + 1], &sums);
    }
  }
  return sums;
}

// The same of any chunk of `bytes` > 0 bytes: the last of a buffer, or one at an odd address. It
// asks for its keys one by one, so that the rare case costs the other one no registers.
EBB_HOST_DEVICE inline Sums SumsOfLane(const unsigned char* chunk, int64_t bytes, int lane,
                                       const Keys& keys) {
  Sums sums;
  for (int i = 0; i < kUnitsPerLane; ++i) {
    for (int j = 0; j < kUnitWords; ++j) {
      const int word = (lane + i * kLanes) * kUnitWords + j;
      const int64_t left = bytes - word * kWordBytes;
      if (left <= 0) return sums;
      AddWord(LoadWord(chunk + word * kWordBytes, left), keys.words[word], keys.words[word + 1],
              &sums);
    }
  }
  return sums;
}

}  // namespace ebbtide::digest_core

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_CORE_H_
