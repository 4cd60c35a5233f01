// SPDX-License-Identifier: Apache-2.0

#include "allocator/failure_injector.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace ebbtide {
namespace {

constexpr const char* kNames[kDriverCalls] = {"Reserve", "Commit",    "Decommit",
                                              "Move",    "Unreserve", "Record"};

}  // namespace

int64_t FailureInjector::Counted(std::optional<DriverCall> kind) const {
  if (kind.has_value()) return calls_[static_cast<size_t>(*kind)];
  return std::accumulate(calls_.begin(), calls_.end(), int64_t{0});
}

absl::Status FailureInjector::Count(DriverCall kind) {
  const auto index = static_cast<size_t>(kind);
  std::lock_guard<std::mutex> lock(mutex_);
  ++calls_[index];
  if (fail_at_ == 0 || (kind_.has_value() && kind_ != kind)) return absl::OkStatus();
  const int64_t number = Counted(kind_);
  if (number != fail_at_ && !(for_ever_ && number > fail_at_)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("injected failure of ", kNames[index]));
}

void FailureInjector::Plan(std::optional<DriverCall> kind, int64_t n, bool for_ever) {
  std::lock_guard<std::mutex> lock(mutex_);
  kind_ = kind;
  fail_at_ = n == 0 ? 0 : Counted(kind) + n;
  for_ever_ = for_ever;
}

int64_t FailureInjector::calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Counted(std::nullopt);
}

int64_t FailureInjector::calls(DriverCall kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Counted(kind);
}

}  // namespace ebbtide
