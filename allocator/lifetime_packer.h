// SPDX-License-Identifier: Apache-2.0
//
// Chooses addresses ahead of time for buffers whose lifetimes and sizes are known, such as those of
// one iteration of a steady program: no two that live at once may share a byte, and the highest end
// should be low. The problem is NP-hard; what comes back is always valid and not always the lowest.
//
// Three stages. A sweep through time with best fit and several greedy orders give a first answer.
// Then a tree search looks for a packing below a target: buffers are placed in order of offset,
// each as low as those below allow, so that only packings pressed down are visited, and a branch is
// left as soon as some instant can no longer hold what it must. What was in the way gets weight and
// is placed earlier in the next, short try. Stretches of time that share no buffer are searched
// apart. (The search in order of offset and the bound per instant are those of Moffitt,
// "MiniMalloc", ASPLOS 2023; the weights on what failed are the usual ones of constraint solvers.)
//
// Threads: a pure function, safe on any thread. Ownership: the result belongs to the caller. To
// replace it, keep PackLifetimes' contract: tests/allocator/lifetime_packer_test.cc holds it.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_PACKER_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_PACKER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ebbtide {

// A buffer of `bytes` that is live at the instants [begin, end), in any unit of time. One that
// lives at no instant conflicts with nothing and lies at offset 0.
struct Lifetime {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // in bytes, one for each lifetime in the order given
  int64_t height = 0;            // the largest offset + bytes
};

struct PackOptions {
  int64_t alignment = 1;  // every offset is a multiple of it; > 0, not necessarily a power of two
  // Stop at the first packing of at most this height in bytes; 0: as low as the steps allow.
  int64_t capacity = 0;
  // How long to improve: a step looks at one buffer or one section of time, a few nanoseconds.
  // Counted, not timed, so that the same input gives the same packing on every machine. The sweep
  // runs whatever this says.
  int64_t max_steps = 25'000'000;
};

// The most bytes that are live at one instant, each size rounded up to `alignment`: no packing can
// be lower (but for the rounding of its topmost buffer).
int64_t MaxLiveBytes(absl::Span<const Lifetime> lifetimes, int64_t alignment = 1);

// REQUIRES: alignment > 0, no negative size, and the sum of all sizes, each rounded up, below 2^62.
Packing PackLifetimes(absl::Span<const Lifetime> lifetimes, const PackOptions& options = {});

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_PACKER_H_
