// SPDX-License-Identifier: Apache-2.0
//
// A quotient of two whole numbers, kept exact until it is compared.
//
// The published simulator divides Python's whole numbers, which gives the double nearest to the
// exact quotient. A denominator of bytes times nanoseconds exceeds 2^53 soon; rounding it to a
// double first would move some quotients by one unit in the last place, and so turn ties into
// decisions and decisions into ties.
//
// Threads: a plain value. Ownership: none. There is nothing to replace.

#ifndef EBBTIDE_POLICY_PUBLISHED_QUOTIENT_H_
#define EBBTIDE_POLICY_PUBLISHED_QUOTIENT_H_

#include <cstdint>

namespace ebbtide::published {

using Int128 = __int128;

struct Quotient {
  int64_t numerator = 0;
  Int128 denominator = 1;

  // The double nearest to the quotient, of two equally near the even one. A denominator that is not
  // positive gives +infinity: what has no size, or was used this very instant, is no victim.
  // REQUIRES: numerator > -2^63, denominator < 2^126.
  double Rounded() const;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_QUOTIENT_H_
