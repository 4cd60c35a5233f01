// SPDX-License-Identifier: Apache-2.0
//
// A budget as a person writes it: an amount of memory ("8GiB") or a share of what the device has
// ("60%"). A share becomes an amount only once the device is known, so the two are kept apart until
// Resolve. A plain value: copying is free, safe on any thread, owns nothing.

#ifndef EBBTIDE_BASE_BUDGET_H_
#define EBBTIDE_BASE_BUDGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"

namespace ebbtide {

class Budget {
 public:
  // REQUIRES: amount > 0.
  static Budget OfBytes(Bytes amount);
  // `share` of the device's memory, 0.6 for 60 %. REQUIRES: 0 < share <= 1.
  static Budget OfShare(double share);

  // The limit in bytes on a device that has `total` bytes, at least 1. An amount stays what it is,
  // even above `total`: the caller said so.
  Bytes Resolve(Bytes total) const;

  // As it can be parsed again and for people: "8.00 GiB", "60%".
  std::string ToString() const;

  friend bool operator==(const Budget&, const Budget&) = default;

 private:
  Budget(Bytes amount, double share) : amount_(amount), share_(share) {}

  Bytes amount_;  // Zero when this is a share.
  double share_;  // Zero when this is an amount.
};

// Reads an amount as ParseBytes does, or a number greater than 0 and at most 100 with a percent
// sign. Anything else, zero included, is an InvalidArgument error whose text says the value and
// what is allowed.
absl::StatusOr<Budget> ParseBudget(absl::string_view text);

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_BUDGET_H_
