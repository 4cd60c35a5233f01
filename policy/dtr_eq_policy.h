// SPDX-License-Identifier: Apache-2.0
//
// dtr-eq: the heuristic h_DTR^eq of Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021,
// section 4.1 and appendix C.2). The victim is the candidate v with the least
//
//     (c(v) + sum over the distinct components C of evicted neighbours of v: cost(C)) / (m(v) s(v))
//
// c = measured duration of the call that makes v, m = its bytes, s = time since it was last read.
// Evicted values form the components of a union-find: a value joins those of its evicted neighbours
// (what its call reads, and what is made from it) when it loses its memory, and leaves by having
// its cost subtracted when it comes back. Components are never split, so that a component may count
// two groups that are not connected any more; the paper accepts that, and so do we.
//
// A decision looks at every candidate. Threads and ownership as EvictionPolicy.

#ifndef EBBTIDE_POLICY_DTR_EQ_POLICY_H_
#define EBBTIDE_POLICY_DTR_EQ_POLICY_H_

#include <memory>

#include "policy/eviction_policy.h"

namespace ebbtide {

std::unique_ptr<EvictionPolicy> MakeDtrEqPolicy(Bytes min_bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_DTR_EQ_POLICY_H_
