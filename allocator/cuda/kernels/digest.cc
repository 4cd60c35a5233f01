// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/digest.h"

#include <cstddef>
#include <cstring>

#include "allocator/cuda/kernels/digest_core.h"
#include "base/check.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ebbtide {
namespace {

using digest_core::kChunkBytes;
using digest_core::kChunkWords;
using digest_core::kWordBytes;
using digest_core::Sums;

constexpr digest_core::Keys kKeys = digest_core::MakeKeys();

#ifdef __SSE2__

// By hand, because GCC makes three multiplications of each: it does not see that the upper halves
// of both factors are zero.
Sums SumsOfWholeChunk(const unsigned char* chunk) {
  const auto load = [](const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const auto product = [](__m128i word, __m128i key) {
    const __m128i keyed = _mm_add_epi32(word, key);
    return _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
  };
  __m128i first = _mm_setzero_si128();
  __m128i second = _mm_setzero_si128();
  for (int j = 0; j < kChunkWords; j += 2) {
    const __m128i words = load(chunk + j * kWordBytes);
    first = _mm_add_epi64(first, product(words, load(&kKeys.words[j])));
    second = _mm_add_epi64(second, product(words, load(&kKeys.words[j + 1])));
  }
  const __m128i sums =
      _mm_add_epi64(_mm_unpacklo_epi64(first, second), _mm_unpackhi_epi64(first, second));
  alignas(16) uint64_t pair[2];
  _mm_store_si128(reinterpret_cast<__m128i*>(pair), sums);
  return {pair[0], pair[1]};
}

#else

Sums SumsOfWholeChunk(const unsigned char* chunk) {
  Sums sums;
  for (int j = 0; j < kChunkWords; ++j) {
    uint64_t word;
    std::memcpy(&word, chunk + j * kWordBytes, kWordBytes);
    digest_core::AddWord(word, kKeys.words[j], kKeys.words[j + 1], &sums);
  }
  return sums;
}

#endif

// Of 1 to kChunkBytes - 1 bytes.
Sums SumsOfLastChunk(const unsigned char* chunk, int64_t bytes) {
  Sums sums;
  const int whole_words = static_cast<int>(bytes / kWordBytes);
  const auto add = [&](int j, int64_t word_bytes) {
    uint64_t word = 0;
    std::memcpy(&word, chunk + j * kWordBytes, static_cast<size_t>(word_bytes));
    digest_core::AddWord(word, kKeys.words[j], kKeys.words[j + 1], &sums);
  };
  for (int j = 0; j < whole_words; ++j) add(j, kWordBytes);
  if (bytes % kWordBytes > 0) add(whole_words, bytes % kWordBytes);
  return sums;
}

}  // namespace

Digest HostDigest(DigestBuffer buffer) {
  EBB_CHECK(buffer.bytes >= 0);
  const auto* content = static_cast<const unsigned char*>(buffer.address);
  const int64_t whole_chunks = buffer.bytes / kChunkBytes;
  Sums sums;
  for (int64_t i = 0; i < whole_chunks; ++i) {
    sums += digest_core::MixChunk(SumsOfWholeChunk(content + i * kChunkBytes), i);
  }
  const int64_t left = buffer.bytes % kChunkBytes;
  if (left > 0) {
    sums +=
        digest_core::MixChunk(SumsOfLastChunk(content + buffer.bytes - left, left), whole_chunks);
  }
  return digest_core::Finish(sums, buffer.bytes);
}

void HostDigests(const DigestBuffer* buffers, int64_t count, Digest* digests) {
  for (int64_t i = 0; i < count; ++i) digests[i] = HostDigest(buffers[i]);
}

}  // namespace ebbtide
