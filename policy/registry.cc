// SPDX-License-Identifier: Apache-2.0

#include "policy/registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/dtr_eq_policy.h"
#include "policy/ebb_policy.h"
#include "policy/ordered_policy.h"

namespace ebbtide {
namespace {

struct Entry {
  absl::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(Bytes min_bytes);
};

constexpr Entry kPolicies[] = {
    {"ebb", &MakeEbbPolicy},
    {"dtr-eq", &MakeDtrEqPolicy},
    {"lru", &MakeLruPolicy},
    {"size", &MakeSizePolicy},
};

}  // namespace

std::vector<absl::string_view> PolicyNames() {
  std::vector<absl::string_view> names;
  for (const Entry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(absl::string_view name,
                                                           Bytes min_bytes) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make(min_bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat("no eviction policy is called '", name,
                                                 "'; there are: ",
                                                 absl::StrJoin(PolicyNames(), ", ")));
}

}  // namespace ebbtide
