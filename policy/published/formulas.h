// SPDX-License-Identifier: Apache-2.0
//
// The formulas of the published heuristics: Kirisame et al., "Dynamic Tensor Rematerialization",
// ICLR 2021, section 4.1 and appendix C, as its simulator (uwsampl/dtr-prototype, simrd)
// computes them. The names are those of the simulator's classes.
//
// In all of them `cost` is nanoseconds to make the storage's own tensors, `bytes` its size, and
// `staleness` nanoseconds since its last access. The least value is evicted.
//
// Threads: pure functions. Ownership: none. Another heuristic is one more function.

#ifndef EBBTIDE_POLICY_PUBLISHED_FORMULAS_H_
#define EBBTIDE_POLICY_PUBLISHED_FORMULAS_H_

#include <cstdint>

#include "policy/published/quotient.h"

namespace ebbtide::published {

// h_DTR (section 4.1): cost of the storage and of all evicted ones that it is connected with
// through evicted ones, `descendants` towards what was made from it and `ancestors` towards what it
// was made from.
inline Quotient DtrValue(int64_t cost, int64_t descendants, int64_t ancestors, int64_t bytes,
                         int64_t staleness) {
  return {cost + descendants + ancestors, Int128{bytes} * staleness};
}

// h_DTR^eq (appendix C.2): the same with the neighbourhood approximated by classes that only grow;
// `classes` is the sum of the values of the distinct classes next to the storage. It may be
// negative, because a class can lose more than it was given.
inline Quotient DtrEqClassValue(int64_t cost, int64_t classes, int64_t bytes, int64_t staleness) {
  return {cost + classes, Int128{bytes} * staleness};
}

// h_DTR^local (section 4.1): the storage's own cost alone.
inline Quotient DtrLocalValue(int64_t cost, int64_t bytes, int64_t staleness) {
  return {cost, Int128{bytes} * staleness};
}

// h_MSPS (section 4.1, after Peng et al., "Capuchin", ASPLOS 2020): cost to bring the storage back
// now, for each byte that its eviction frees.
inline Quotient MspsValue(int64_t cost, int64_t ancestors, int64_t bytes) {
  return {cost + ancestors, bytes};
}

// h_LRU (section 4.1): the longest unused first, whatever its size.
inline Quotient LruValue(int64_t last_access) { return {last_access, 1}; }

// h_size (section 4.1, GreedyRemat): the largest first.
inline Quotient LargestStorageValue(int64_t bytes) { return {1, bytes}; }

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_FORMULAS_H_
