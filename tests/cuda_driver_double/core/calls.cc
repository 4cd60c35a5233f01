// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/calls.h"

#include <utility>

namespace ebbtide::hollow {
namespace {

bool Means(absl::string_view rule_name, absl::string_view name) {
  return rule_name == "*" || WithoutVersion(rule_name) == name;
}

}  // namespace

absl::string_view WithoutVersion(absl::string_view entry_point) {
  const size_t at = entry_point.rfind("_v");
  return at == absl::string_view::npos ? entry_point : entry_point.substr(0, at);
}

void Calls::Rules::Set(std::vector<CallRule> rules) {
  rules_ = std::move(rules);
  seen_.assign(rules_.size(), 0);
}

const CallRule* Calls::Rules::Count(absl::string_view name) {
  const CallRule* hit = nullptr;
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (!Means(rules_[i].name, name)) continue;
    if (rules_[i].Hits(++seen_[i]) && hit == nullptr) hit = &rules_[i];
  }
  return hit;
}

Calls::Decision Calls::Count(absl::string_view entry_point) {
  const absl::string_view name = WithoutVersion(entry_point);
  auto count = counts_.find(name);
  if (count == counts_.end()) count = counts_.emplace(std::string(name), 0).first;
  ++count->second;
  Decision decision;
  if (const CallRule* rule = failures_.Count(name)) {
    decision.result = rule->result.value_or(Result::kOutOfMemory);
  }
  if (const CallRule* rule = breaks_.Count(name)) {
    decision.breaks = rule->result.value_or(Result::kIllegalAddress);
  }
  for (const CallLatency& latency : latencies_) {
    if (Means(latency.name, name)) decision.microseconds += latency.microseconds;
  }
  return decision;
}

int64_t Calls::count(absl::string_view name) const {
  int64_t sum = 0;
  for (const auto& [each, count] : counts_) {
    if (Means(name, each)) sum += count;
  }
  return sum;
}

}  // namespace ebbtide::hollow
