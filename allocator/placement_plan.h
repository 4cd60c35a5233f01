// SPDX-License-Identifier: Apache-2.0
//
// A place in memory for each request of one iteration of a steady program, computed ahead. The
// iteration is a circle: what is freed in the next one is live on both sides of where it begins.
// A block that lives longer than an iteration is still there when the program asks for its
// successor, so that the two need two places in turn; then the plan covers two iterations. What
// lives longer than two, or is never freed, has no place in a plan.
//
// The places come from two packers, and the lower result is taken: PackByPushdown, in which what
// lives across the ends of the iteration keeps its place all the time, and PackLifetimes, in which
// others use that place in between.
//
// Threads: a pure function, safe on any thread. Ownership: the result belongs to the caller.

#ifndef EBBTIDE_ALLOCATOR_PLACEMENT_PLAN_H_
#define EBBTIDE_ALLOCATOR_PLACEMENT_PLAN_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace ebbtide {

struct CyclicRequest {
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  int64_t bytes = 0;
  // How many requests later it is freed: 1 if before the next one, and kForever if never.
  int64_t length = kForever;
};

struct PlacementPlan {
  struct Request {
    int64_t bytes = 0;
    int64_t offset = -1;  // in bytes; -1: not planned
  };
  std::vector<Request> requests;  // of one iteration, or of two
  int64_t height = 0;             // the end of the highest place, in bytes
  int64_t peak_bytes = 0;         // the most planned bytes that live at once: no plan is lower
};

struct PlanOptions {
  int64_t alignment = 512;         // of the places, in bytes
  int64_t max_steps = 12'000'000;  // of PackLifetimes, all in all; 0: PackByPushdown alone
};

// O(n log n) for n requests, and PackLifetimes. REQUIRES: no negative size, lengths > 0.
PlacementPlan PlanPlacements(absl::Span<const CyclicRequest> requests,
                             const PlanOptions& options = {});

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PLACEMENT_PLAN_H_
