// SPDX-License-Identifier: Apache-2.0

#include "policy/published/quotient.h"

#include <cmath>
#include <limits>

namespace ebbtide::published {
namespace {

using Unsigned128 = unsigned __int128;

constexpr int64_t kExactMax = int64_t{1} << 53;

// The same by long division: 62 or more significant bits and one that stands for the rest, which is
// all that rounding to 53 bits can ask for.
double DivideExactly(uint64_t numerator, Unsigned128 denominator) {
  if (numerator == 0) return 0;
  Unsigned128 rest = numerator;
  int exponent = 0;
  for (; rest >= denominator << 1; ++exponent) denominator <<= 1;
  for (; rest < denominator; --exponent) rest <<= 1;
  uint64_t bits = 0;
  for (int i = 0; i < 62; ++i) {
    bits <<= 1;
    if (rest >= denominator) {
      rest -= denominator;
      bits |= 1;
    }
    rest <<= 1;
  }
  if (rest != 0) bits |= 1;
  return std::ldexp(static_cast<double>(bits), exponent - 61);
}

}  // namespace

double Quotient::Rounded() const {
  if (denominator <= 0) return std::numeric_limits<double>::infinity();
  if (denominator <= kExactMax && numerator <= kExactMax && numerator >= -kExactMax) {
    return static_cast<double>(numerator) / static_cast<double>(denominator);
  }
  const uint64_t magnitude =
      numerator < 0 ? -static_cast<uint64_t>(numerator) : static_cast<uint64_t>(numerator);
  const double quotient = DivideExactly(magnitude, static_cast<Unsigned128>(denominator));
  return numerator < 0 ? -quotient : quotient;
}

}  // namespace ebbtide::published
