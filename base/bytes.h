// SPDX-License-Identifier: Apache-2.0
//
// An amount of memory as a type of its own, so that a count of bytes cannot be mistaken for a count
// of elements, pages or granules. `Bytes` is a plain 64-bit signed number: copying is free, every
// function is safe on any thread, and nothing is owned. Signed, because differences of amounts
// ("how much is missing?") may be negative.
//
// Arithmetic is unchecked, as with int64_t: amounts stay far below Bytes::Max(), which stands for
// "no limit" and must be compared with, never added to.
//
// Units in text follow one rule. Letters alone and the `i` forms are powers of two, the unit that
// memory is sold and measured in: k, m, g, t and KiB, MiB, GiB, TiB (also Ki, Mi, ...). The `B`
// forms without an `i` are the SI powers of ten: KB = 10^3, MB = 10^6, GB = 10^9, TB = 10^12.
// Upper and lower case are the same.

#ifndef EBBTIDE_BASE_BYTES_H_
#define EBBTIDE_BASE_BYTES_H_

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ebbtide {

class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(int64_t count) : count_(count) {}

  // Stands for "no limit".
  static constexpr Bytes Max() { return Bytes(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t count() const { return count_; }

  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, int64_t factor) { return Bytes(a.count_ * factor); }
  friend constexpr Bytes operator*(int64_t factor, Bytes a) { return Bytes(a.count_ * factor); }
  friend constexpr Bytes operator/(Bytes a, int64_t divisor) { return Bytes(a.count_ / divisor); }

  // How often `b` fits into `a` whole. REQUIRES: b is not zero.
  friend constexpr int64_t operator/(Bytes a, Bytes b) { return a.count_ / b.count_; }
  // What is left after that. REQUIRES: b is not zero.
  friend constexpr Bytes operator%(Bytes a, Bytes b) { return Bytes(a.count_ % b.count_); }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;

  template <typename H>
  friend H AbslHashValue(H state, Bytes bytes) {
    return H::combine(std::move(state), bytes.count_);
  }

 private:
  int64_t count_ = 0;
};

// The smallest multiple of `unit` that is not below `amount`.
// REQUIRES: amount >= 0, unit > 0, and the result fits into 63 bits.
constexpr Bytes RoundUp(Bytes amount, Bytes unit) {
  return (amount + unit - Bytes(1)) / unit * unit;
}

// The largest multiple of `unit` that is not above `amount`. REQUIRES: amount >= 0, unit > 0.
constexpr Bytes RoundDown(Bytes amount, Bytes unit) { return amount / unit * unit; }

// Reads an amount in the units above: `8GiB`, `1.5g`, `512m`, `2 GB`, `4096`. A fraction needs a
// unit and is rounded down to whole bytes. Anything else (a sign, an unknown unit, an amount of
// 2^63 bytes or more) is an InvalidArgument error whose text says the value and what is allowed.
absl::StatusOr<Bytes> ParseBytes(absl::string_view text);

// For people: two decimals in the largest power-of-two unit that is not above the amount
// ("1.30 GiB", "-2.00 KiB"), and whole bytes below 1 KiB ("512 B").
std::string FormatBytes(Bytes amount);

// Prints FormatBytes and the exact count, for test failures and check messages.
std::ostream& operator<<(std::ostream& out, Bytes amount);

// Literals: `using namespace ebbtide::literals;` then 64_KiB, 8_MiB, 1_GiB.
namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 30);
}
constexpr Bytes operator""_TiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 40);
}
}  // namespace literals

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_BYTES_H_
