// SPDX-License-Identifier: Apache-2.0
//
// The two policies whose order does not change by itself, over one ordered index:
//
//   lru   the value whose last read lies longest back       (key: last access)
//   size  the largest value                                 (key: minus its bytes)
//
// Both as in DTR (Kirisame et al., ICLR 2021, section 4.1: h_LRU and h_size), here without a scan:
// a decision is the first element that is not pinned, an update O(log n). Threads and ownership as
// EvictionPolicy.

#ifndef EBBTIDE_POLICY_ORDERED_POLICY_H_
#define EBBTIDE_POLICY_ORDERED_POLICY_H_

#include <memory>

#include "policy/eviction_policy.h"

namespace ebbtide {

std::unique_ptr<EvictionPolicy> MakeLruPolicy(Bytes min_bytes);
std::unique_ptr<EvictionPolicy> MakeSizePolicy(Bytes min_bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_ORDERED_POLICY_H_
