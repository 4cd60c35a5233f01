// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <array>
#include <cctype>
#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace ebbtide {
namespace {

struct Unit {
  absl::string_view name;
  int64_t bytes;
};

constexpr std::array<Unit, 26> kUnits = {{
    {"", 1},
    {"b", 1},
    {"byte", 1},
    {"bytes", 1},
    {"k", int64_t{1} << 10},
    {"ki", int64_t{1} << 10},
    {"kib", int64_t{1} << 10},
    {"m", int64_t{1} << 20},
    {"mi", int64_t{1} << 20},
    {"mib", int64_t{1} << 20},
    {"g", int64_t{1} << 30},
    {"gi", int64_t{1} << 30},
    {"gib", int64_t{1} << 30},
    {"t", int64_t{1} << 40},
    {"ti", int64_t{1} << 40},
    {"tib", int64_t{1} << 40},
    {"p", int64_t{1} << 50},
    {"pi", int64_t{1} << 50},
    {"pib", int64_t{1} << 50},
    {"e", int64_t{1} << 60},
    {"eib", int64_t{1} << 60},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
    {"pb", 1'000'000'000'000'000},
}};

constexpr absl::string_view kAllowed = "an amount such as 8GiB, 1.5g, 512m or 1073741824";

absl::Status NotAnAmount(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" %s; allowed is %s", text, why, kAllowed));
}

const Unit* FindUnit(absl::string_view name) {
  for (const Unit& unit : kUnits) {
    if (absl::EqualsIgnoreCase(unit.name, name)) return &unit;
  }
  return nullptr;
}

absl::string_view TakeDigits(absl::string_view& rest) {
  size_t length = 0;
  while (length < rest.size() && absl::ascii_isdigit(rest[length])) ++length;
  absl::string_view digits = rest.substr(0, length);
  rest.remove_prefix(length);
  return digits;
}

// The value of a fraction's digits in bytes, rounded down. Digits past the eighteenth cannot change
// a whole byte of any unit that a person writes, and are dropped so that the product fits 128 bits.
__int128 FractionBytes(absl::string_view digits, int64_t unit_bytes) {
  __int128 numerator = 0;
  __int128 denominator = 1;
  for (char digit : digits.substr(0, 18)) {
    numerator = numerator * 10 + (digit - '0');
    denominator *= 10;
  }
  return numerator * unit_bytes / denominator;
}

}  // namespace

absl::StatusOr<Bytes> ParseBytes(absl::string_view text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  const absl::string_view whole = TakeDigits(rest);
  absl::string_view fraction;
  const bool has_point = !rest.empty() && rest[0] == '.';
  if (has_point) {
    rest.remove_prefix(1);
    fraction = TakeDigits(rest);
  }
  if (whole.empty() && fraction.empty()) return NotAnAmount(text, "is not an amount of memory");

  const absl::string_view unit_name = absl::StripAsciiWhitespace(rest);
  const Unit* unit = FindUnit(unit_name);
  if (unit == nullptr) return NotAnAmount(text, "is not an amount of memory");
  if (has_point && unit->bytes == 1) return NotAnAmount(text, "has a fraction but no unit");

  constexpr __int128 kLimit = std::numeric_limits<int64_t>::max();
  __int128 total = 0;
  for (char digit : whole) {
    total = total * 10 + (digit - '0');
    if (total > kLimit) return NotAnAmount(text, "is too large");
  }
  total = total * unit->bytes + FractionBytes(fraction, unit->bytes);
  if (total > kLimit) return NotAnAmount(text, "is too large");
  return Bytes(static_cast<int64_t>(total));
}

std::string FormatBytes(Bytes amount) {
  constexpr std::array<const char*, 7> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(amount.count());
  size_t step = 0;
  // 1023.995 would be printed as 1024.00: the next unit reads better.
  while ((value >= 1023.995 || value <= -1023.995) && step + 1 < kNames.size()) {
    value /= 1024;
    ++step;
  }
  if (step == 0) return absl::StrFormat("%d B", amount.count());
  return absl::StrFormat("%.2f %s", value, kNames[step]);
}

std::ostream& operator<<(std::ostream& out, Bytes amount) {
  return out << absl::StrFormat("%s (%d bytes)", FormatBytes(amount), amount.count());
}

}  // namespace ebbtide
