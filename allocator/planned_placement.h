// SPDX-License-Identifier: Apache-2.0
//
// Learns what a steady program asks for in an iteration, and then says for each request at which
// place in a region of memory its block goes, so that the region is hardly larger than what lives
// at once:
//
//     auto request = planned.Place(bytes);     // every request, with its final size
//     if (request.offset && region.IsFree(*request.offset, bytes)) take it
//     else planned.Missed(), and allocate elsewhere
//     ...
//     planned.Freed(request.token, bytes);     // every block, once its memory can be reused
//
// and after each request
//
//     if (auto problem = planned.TakeProblem()) {    // an iteration was seen twice
//       PlacementPlan plan = PlanPlacements(problem->requests, ...);   // milliseconds; no lock
//       planned.Adopt(*problem, std::move(plan));
//     }
//
// It only makes suggestions, so it may be wrong about the program and never about memory. A request
// that departs from the plan is noticed at once; from there on requests have no place until the
// last few of them agree with the plan again, where it departed or anywhere else in it, or with
// another of the plans that are kept (training and evaluation, two lengths of a sequence). No marks
// are needed.
//
// A program that keeps to a plan but frees later than it did when it was learned finds places
// taken; after an iteration with such misses it is learned anew, a few times.
//
// A problem is handed out at the point of the iteration where the least lives, because a region
// that is memory, not only addresses, is best obtained there.
//
// Cost: all functions are O(1) but for TakeProblem and Adopt, which are linear in the iteration
// when they do something. Memory: about 100 bytes for each request of period_max, all at once, and
// 40 for each of a plan.
//
// Threads: none, the owner locks. Ownership: owns its records, and no memory of the region.

#ifndef EBBTIDE_ALLOCATOR_PLANNED_PLACEMENT_H_
#define EBBTIDE_ALLOCATOR_PLANNED_PLACEMENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/period_finder.h"
#include "allocator/placement_plan.h"

namespace ebbtide {

struct PlannedPlacementOptions {
  int64_t period_max = 1 << 14;  // requests of the longest iteration that is found
  int64_t period_min = 16;       // shorter ones are loops inside of something, not iterations
  int plans_max = 4;             // kept side by side
};

class PlannedPlacement {
 public:
  // Names a request for as long as its block lives. Never reused.
  using Token = int64_t;
  struct Request {
    Token token;
    std::optional<int64_t> offset;  // in the region, in bytes; none: allocate elsewhere
    bool begins = false;            // with it an iteration of the plan begins
  };
  // An iteration to plan.
  struct Problem {
    std::vector<CyclicRequest> requests;
    Token first;      // the request that requests[0] describes
    bool incomplete;  // of some blocks it was not yet known when they are freed
  };
  struct Stats {
    int64_t suggested = 0;   // requests that got a place
    int64_t missed = 0;      // whose place could not be used
    int64_t departures = 0;  // from a plan
    int64_t returns = 0;     // to a plan, the first time included
    int64_t problems = 0;    // handed out
  };

  explicit PlannedPlacement(const PlannedPlacementOptions& options = {});

  // The next request of the program, of `bytes` >= 0 as the allocator rounds it.
  Request Place(int64_t bytes);
  // The place that Place suggested last could not be used: the block lies elsewhere.
  void Missed();
  // The block of a request of `bytes` is free and may be used again at once. To be called for every
  // request once.
  void Freed(Token token, int64_t bytes);

  // An iteration that was seen twice and is not followed yet, or is followed with misses. Each is
  // returned once; the more there were, the longer it takes until the next.
  std::optional<Problem> TakeProblem();
  // Follows `plan`, made from `problem`, from the next request on if the program still repeats that
  // iteration, else once it does so again. The region must reach to plan.height.
  void Adopt(const Problem& problem, PlacementPlan plan);

  // How far the places of the plan that is followed reach, in bytes: the size of the region. 0 for
  // none.
  int64_t height() const { return current_ == nullptr ? 0 : current_->height; }
  bool following() const { return current_ != nullptr; }
  const Stats& stats() const { return stats_; }

 private:
  struct Plan {
    std::vector<PlacementPlan::Request> requests;
    int64_t height = 0;
    int64_t period = 0;  // requests.size(), or half of it
    bool incomplete = false;
    int lessons = 0;      // how often it was made anew
    Token last_used = 0;  // when it was followed last
  };
  struct Spot {
    Plan* plan;
    int64_t phase;
    bool ambiguous;  // in several places
  };

  bool Remembers(Token token) const { return token >= finder_.count() - finder_.history(); }
  Request Follow(Token token, int64_t bytes);
  void Return();
  bool LastAgree(const Plan& plan, int64_t phase, int64_t requests) const;
  bool LessonDue() const;
  bool NewPeriod();
  bool Steady(int64_t period) const;
  Token NextLow(int64_t period) const;
  Problem Describe(int64_t period) const;
  Plan* SlotFor(const Problem& problem);
  void IndexPlans();

  const PlannedPlacementOptions options_;
  PeriodFinder finder_;
  // Of the requests that the finder remembers.
  std::vector<Token> freed_at_;     // how many requests there were when it was freed, or -1
  std::vector<int64_t> live_then_;  // bytes that lived before it
  int64_t live_bytes_ = 0;

  std::vector<std::unique_ptr<Plan>> plans_;
  absl::flat_hash_map<uint64_t, Spot> spots_;  // by the window hash that ends there
  Plan* current_ = nullptr;                    // followed
  Plan* left_ = nullptr;                       // departed from last
  Token left_at_ = 0;
  int64_t phase_ = 0;     // the next request of current_, or of left_ where it was left
  int64_t followed_ = 0;  // requests of current_ since it was adopted or returned to
  int64_t misses_ = 0;    // among these, after a first iteration
  // The problem that is being waited for: its period, or 0, and the request before which it is due.
  int64_t due_period_ = 0;
  Token due_ = 0;
  // What TakeProblem looked at last: the request since which a period holds, the period, and the
  // count of requests before which it is not worth another look.
  std::pair<Token, int64_t> looked_at_{-1, 0};
  int64_t look_again_ = 0;
  int64_t rest_until_ = 0;  // no problem before this request
  Plan* lesson_ = nullptr;  // the plan that the problem would make anew
  Stats stats_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PLANNED_PLACEMENT_H_
