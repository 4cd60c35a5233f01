// SPDX-License-Identifier: Apache-2.0
//
// The published heuristics by name, with what they have to remember between decisions.
//
// Threads: safe on any thread. Ownership: a heuristic is the caller's, one for each simulation. To
// add one, see policy/published/heuristic.h.

#ifndef EBBTIDE_POLICY_PUBLISHED_HEURISTICS_H_
#define EBBTIDE_POLICY_PUBLISHED_HEURISTICS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/published/heuristic.h"

namespace ebbtide::published {

// DTR, DTREqClass, DTRLocal, MSPS, LRU and LargestStorage: the names that the published simulator
// gives them (policy/published/formulas.h has what they mean).
std::vector<absl::string_view> HeuristicNames();

// A heuristic for a schedule with so many storages. Errors: InvalidArgument, listing the names, if
// there is none of that name.
absl::StatusOr<std::unique_ptr<Heuristic>> MakeHeuristic(absl::string_view name, size_t storages);

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_HEURISTICS_H_
