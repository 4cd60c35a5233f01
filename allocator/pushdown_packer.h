// SPDX-License-Identifier: Apache-2.0
//
// Chooses addresses ahead of time in one pass over begins and ends: quick, and often a little
// higher than PackLifetimes. The pass keeps the order of buffers in space and not yet their
// addresses. A buffer goes into the smallest gap that takes it; if none does, into the largest one,
// which grows; only if there is none, on top. In the end every buffer is pushed down onto those it
// came to lie above. This is what MegEngine calls pushdown and MegTaiChi (ICS 2022) "tensor memory
// allocation".
//
// Threads: a pure function, safe on any thread. Ownership: the result belongs to the caller. To
// replace it, keep PackLifetimes' contract.

#ifndef EBBTIDE_ALLOCATOR_PUSHDOWN_PACKER_H_
#define EBBTIDE_ALLOCATOR_PUSHDOWN_PACKER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "allocator/lifetime_packer.h"

namespace ebbtide {

// O(n log n). REQUIRES what PackLifetimes requires, and no fixed offset.
Packing PackByPushdown(absl::Span<const Lifetime> lifetimes, int64_t alignment = 1);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PUSHDOWN_PACKER_H_
