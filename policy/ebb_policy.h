// SPDX-License-Identifier: Apache-2.0
//
// ebb: Ebbtide's own policy, in the form that needs no knowledge of the program's pattern. The
// victim is the candidate v with the least
//
//     A(v) (1 + D(v)) / (m(v) s(v))
//
// A = what a rebuild of v would run now: the cost of its call and of all calls that make the values
// without memory that it reads, directly or through others. D = how many recorded calls with an
// evicted output would have to rebuild v first: each becomes dearer by A(v). Without D the states
// of a recurrent network leave one by one, each of them cheap as long as its predecessor is there.
// m = bytes, s = time since the last read.
//
// Compared with the evicted neighbourhood of DTR (policy/dtr_eq_policy.h), A is exact, and D counts
// only what the program still waits for. That matters once an optimizer is part of the program:
// when the backward pass is nearly done, all that it has consumed forms one large neighbourhood
// that makes every value look equally dear, and gradients of weights, which only a whole forward
// and backward pass could bring back, would leave as readily as an activation.
//
// A decision computes A and D for few candidates: a ScoreIndex looks at them in the order of a
// lower bound, and each walk stops once it has lost. The walk for D ends after 256 calls: D may be
// too small, never too large. Threads and ownership as EvictionPolicy.

#ifndef EBBTIDE_POLICY_EBB_POLICY_H_
#define EBBTIDE_POLICY_EBB_POLICY_H_

#include <memory>

#include "policy/eviction_policy.h"

namespace ebbtide {

std::unique_ptr<EvictionPolicy> MakeEbbPolicy(Bytes min_bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_EBB_POLICY_H_
