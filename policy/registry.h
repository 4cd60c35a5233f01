// SPDX-License-Identifier: Apache-2.0
//
// The policies by name: one table, which the conformance test walks. The options table (base/) lies
// below and has the names of its own; a test holds the two together.
//
// Safe on any thread; owns nothing. To add a policy, see policy/eviction_policy.h.

#ifndef EBBTIDE_POLICY_REGISTRY_H_
#define EBBTIDE_POLICY_REGISTRY_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/eviction_policy.h"

namespace ebbtide {

// All names; the first is the default.
std::vector<absl::string_view> PolicyNames();

// A policy that leaves values below `min_bytes` alone. InvalidArgument, listing the names, if there
// is none of that name.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(absl::string_view name, Bytes min_bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_REGISTRY_H_
