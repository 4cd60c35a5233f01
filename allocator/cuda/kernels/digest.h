// SPDX-License-Identifier: Apache-2.0
//
// A digest of 128 bits of a buffer's content: what remains of a tensor that leaves, to be compared
// when it comes back. The same content has the same digest at any address, on the host and on a GPU
// (cuda_digest.h), however the work is cut up: a content is cut into chunks of 2 KiB, a chunk into
// words, and both levels are added up, in any order. digest_core.h holds the arithmetic.
//
// What can be said about different contents with equal digests:
//
//   never        when they have the same length and differ within one aligned word of 4 bytes only
//                (one flipped bit, one other float, two other halves of a float), or when they
//                have the same words and only zero bytes up to the next multiple of 8 apart
//   by chance    within one chunk, NH of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway,
//                CRYPTO 1999) with its Toeplitz shift: at most 2^-64 for any two contents of one
//                length, were the keys random; across chunks sums of well mixed 128-bit numbers
//   on purpose   easily: the keys are fixed and known. This is no protection against anybody; it
//                finds mistakes.
//
// Thread safety: any thread, any time; nothing is owned. To replace: change digest_core.h, and both
// sides follow; digests are compared within one process and never stored.

#ifndef EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_H_
#define EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_H_

#include <cstdint>

namespace ebbtide {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

// A buffer of `bytes` >= 0 bytes at any address. The layout is shared with GPU code.
struct DigestBuffer {
  const void* address = nullptr;
  int64_t bytes = 0;
};

// The digest of memory that this process can read.
Digest HostDigest(DigestBuffer buffer);

// The same of `count` buffers, into digests[0, count). The reference for CudaDigests.
void HostDigests(const DigestBuffer* buffers, int64_t count, Digest* digests);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_KERNELS_DIGEST_H_
