// SPDX-License-Identifier: Apache-2.0
#include "base/budget.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace ebbtide {
namespace {

absl::StatusOr<Budget> ParseShare(absl::string_view text, absl::string_view number) {
  double percent = 0;
  const absl::string_view digits = absl::StripAsciiWhitespace(number);
  // Only plain decimals: the general parser would also take "nan", "1e1" and "0x10".
  const bool plain = !digits.empty() &&
                     digits.find_first_not_of("0123456789.") == absl::string_view::npos &&
                     absl::SimpleAtod(digits, &percent);
  if (!plain || percent <= 0 || percent > 100) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "\"%s\" is not a share of the device's memory; allowed is more than 0%% and at most 100%%, "
        "such as 60%%",
        text));
  }
  return Budget::OfShare(percent / 100);
}

}  // namespace

Budget Budget::OfBytes(Bytes amount) {
  EBB_CHECK(amount > Bytes(0)) << amount;
  return Budget(amount, 0);
}

Budget Budget::OfShare(double share) {
  EBB_CHECK(share > 0 && share <= 1) << share;
  return Budget(Bytes(0), share);
}

Bytes Budget::Resolve(Bytes total) const {
  if (share_ == 0) return amount_;
  // The whole is passed through as it is: its double may be larger than the largest int64.
  if (share_ == 1) return std::max(total, Bytes(1));
  const double exact = static_cast<double>(total.count()) * share_;
  return std::max(Bytes(static_cast<int64_t>(exact)), Bytes(1));
}

std::string Budget::ToString() const {
  if (share_ == 0) return FormatBytes(amount_);
  return absl::StrCat(share_ * 100, "%");
}

absl::StatusOr<Budget> ParseBudget(absl::string_view text) {
  absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  if (absl::ConsumeSuffix(&trimmed, "%")) return ParseShare(text, trimmed);
  absl::StatusOr<Bytes> amount = ParseBytes(text);
  if (!amount.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(amount.status().message(), ", or a share such as 60%"));
  }
  if (*amount == Bytes(0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\" leaves no memory at all; allowed is an amount above zero such as "
                        "8GiB, or a share such as 60%%",
                        text));
  }
  return Budget::OfBytes(*amount);
}

}  // namespace ebbtide
