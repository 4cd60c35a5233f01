// SPDX-License-Identifier: Apache-2.0
#include "allocator/planned_placement.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

constexpr int kLessonsMax = 3;
// After a departure this many requests that agree with the plan where it was left are enough, for
// this long: a program that did something extra goes on where it was.
constexpr int64_t kNearAgreement = 3;
constexpr int64_t kNearFor = 64;
// An iteration gives back what it takes, but for this part of it. A layer that repeats inside of an
// iteration does not.
constexpr int64_t kGrowthDivisor = 16;
// After its n-th problem so many times n requests pass before the next one, so that a program that
// is never steady for long costs less and less.
constexpr int64_t kRestPerProblem = 500;

}  // namespace

PlannedPlacement::PlannedPlacement(const PlannedPlacementOptions& options)
    : options_(options),
      finder_(options.period_max),
      freed_at_(finder_.history(), -1),
      live_then_(finder_.history()) {
  EBB_CHECK(options.period_min >= PeriodFinder::kWindow && options.plans_max > 0)
      << options.period_min << ", " << options.plans_max;
}

PlannedPlacement::Request PlannedPlacement::Place(int64_t bytes) {
  EBB_CHECK(bytes >= 0) << bytes;
  const Token token = finder_.count();
  const int64_t slot = token & (finder_.history() - 1);
  freed_at_[slot] = -1;
  live_then_[slot] = live_bytes_;
  live_bytes_ += bytes;
  finder_.Add(bytes);
  return Follow(token, bytes);
}

void PlannedPlacement::Missed() {
  ++stats_.missed;
  // In the first iteration, blocks from before may still lie anywhere.
  if (current_ != nullptr && followed_ > static_cast<int64_t>(current_->requests.size())) {
    ++misses_;
  }
}

void PlannedPlacement::Freed(Token token, int64_t bytes) {
  live_bytes_ -= bytes;
  if (Remembers(token)) freed_at_[token & (finder_.history() - 1)] = finder_.count();
}

PlannedPlacement::Request PlannedPlacement::Follow(Token token, int64_t bytes) {
  if (current_ != nullptr && current_->requests[phase_].bytes != bytes) {
    ++stats_.departures;
    left_ = current_;
    left_at_ = token;
    current_ = nullptr;
  }
  if (current_ == nullptr) Return();
  if (current_ == nullptr) return {token, std::nullopt};
  Request request{token, std::nullopt, phase_ % current_->period == 0};
  const int64_t offset = current_->requests[phase_].offset;
  phase_ = (phase_ + 1) % static_cast<int64_t>(current_->requests.size());
  ++followed_;
  current_->last_used = token;
  if (offset < 0) return request;
  ++stats_.suggested;
  request.offset = offset;
  return request;
}

// Looks for the last requests in the plans; if they are found, the last one is the next of
// current_.
void PlannedPlacement::Return() {
  const Token token = finder_.count() - 1;
  const auto spot = spots_.find(finder_.window_hash());
  if (spot != spots_.end() && !spot->second.ambiguous &&
      LastAgree(*spot->second.plan, spot->second.phase, PeriodFinder::kWindow)) {
    current_ = spot->second.plan;
    phase_ = spot->second.phase;
  } else if (left_ != nullptr && token - left_at_ <= kNearFor) {
    const int64_t phase =
        (phase_ + kNearAgreement - 1) % static_cast<int64_t>(left_->requests.size());
    if (!LastAgree(*left_, phase, kNearAgreement)) return;
    current_ = left_;
    phase_ = phase;
  } else {
    return;
  }
  ++stats_.returns;
  followed_ = misses_ = 0;
}

// Whether the last `requests` are those of the plan up to and including `phase`.
bool PlannedPlacement::LastAgree(const Plan& plan, int64_t phase, int64_t requests) const {
  if (finder_.count() < requests) return false;
  const auto length = static_cast<int64_t>(plan.requests.size());
  for (int64_t back = 0; back < requests; ++back) {
    const int64_t at = ((phase - back) % length + length) % length;
    if (plan.requests[at].bytes != finder_.at(finder_.count() - 1 - back)) return false;
  }
  return true;
}

std::optional<PlannedPlacement::Problem> PlannedPlacement::TakeProblem() {
  const int64_t period = finder_.period(), count = finder_.count();
  if (due_period_ == 0) {
    if (period < options_.period_min || period > options_.period_max || count < rest_until_) {
      return std::nullopt;
    }
    const bool lesson = LessonDue();
    if (!lesson && !NewPeriod()) return std::nullopt;
    lesson_ = lesson ? current_ : nullptr;
    due_period_ = period;
    due_ = NextLow(period);
  } else if (period != due_period_) {
    due_period_ = 0;  // it was none
    return std::nullopt;
  }
  if (count < due_) return std::nullopt;
  due_period_ = 0;
  if (lesson_ != nullptr) {
    ++lesson_->lessons;
    followed_ = misses_ = 0;
  }
  rest_until_ = count + kRestPerProblem * ++stats_.problems;
  return Describe(period);
}

bool PlannedPlacement::LessonDue() const {
  return current_ != nullptr && finder_.period() == current_->period &&
         current_->lessons < kLessonsMax && (misses_ > 0 || current_->incomplete) &&
         followed_ >= 2 * static_cast<int64_t>(current_->requests.size());
}

// Whether the period in hand is one to plan for.
bool PlannedPlacement::NewPeriod() {
  const int64_t period = finder_.period(), count = finder_.count();
  // What is shorter than the iteration in hand is a loop inside of it.
  if (current_ != nullptr && period <= current_->period) return false;
  const Token since = count - finder_.matched();
  const std::pair<Token, int64_t> looked_at{since, period};
  if (looked_at == looked_at_ && count < look_again_) return false;
  looked_at_ = looked_at;
  const bool steady = Steady(period);
  look_again_ = steady ? CyclicRequest::kForever : count + period;
  return steady;
}

bool PlannedPlacement::Steady(int64_t period) const {
  const int64_t last = finder_.count() - 1, mask = finder_.history() - 1;
  int64_t asked = 0;
  for (int64_t i = 0; i < period; ++i) asked += finder_.at(last - i);
  const int64_t growth = live_then_[last & mask] - live_then_[(last - period) & mask];
  return std::abs(growth) <= asked / kGrowthDivisor;
}

// The next request before which the least lives.
PlannedPlacement::Token PlannedPlacement::NextLow(int64_t period) const {
  const int64_t count = finder_.count(), mask = finder_.history() - 1;
  Token low = count - period;
  for (Token at = low + 1; at < count; ++at) {
    if (live_then_[at & mask] < live_then_[low & mask]) low = at;
  }
  return low + period;
}

// Of each request the longer of the last two lives.
PlannedPlacement::Problem PlannedPlacement::Describe(int64_t period) const {
  const int64_t count = finder_.count(), mask = finder_.history() - 1;
  Problem problem{{}, count - 2 * period, false};
  problem.requests.reserve(period);
  for (Token older = problem.first; older < problem.first + period; ++older) {
    CyclicRequest request{finder_.at(older), CyclicRequest::kForever};
    const Token newer = older + period;
    const Token older_freed = freed_at_[older & mask], newer_freed = freed_at_[newer & mask];
    if (older_freed < 0) {
      problem.incomplete = true;
    } else {
      request.length =
          std::max(older_freed - older, (newer_freed < 0 ? count : newer_freed) - newer);
    }
    problem.requests.push_back(request);
  }
  return problem;
}

void PlannedPlacement::Adopt(const Problem& problem, PlacementPlan plan) {
  const auto period = static_cast<int64_t>(problem.requests.size());
  const auto length = static_cast<int64_t>(plan.requests.size());
  EBB_CHECK(period > 0 && length % period == 0) << period << " requests, a plan of " << length;
  Plan* const slot = SlotFor(problem);
  lesson_ = nullptr;
  slot->requests = std::move(plan.requests);
  slot->height = plan.height;
  slot->period = period;
  slot->incomplete = problem.incomplete;
  slot->last_used = finder_.count();
  IndexPlans();
  const int64_t since = finder_.count() - problem.first;
  if (finder_.period() == period && finder_.matched() >= since - period) {
    current_ = slot;
    phase_ = since % length;
    followed_ = misses_ = 0;
    ++stats_.returns;
  } else if (current_ == slot) {
    current_ = nullptr;
  }
  if (left_ == slot) left_ = nullptr;
}

// The plan that the problem would make anew, a new one, or the one that was not used for longest.
PlannedPlacement::Plan* PlannedPlacement::SlotFor(const Problem& problem) {
  if (lesson_ != nullptr && lesson_->period == static_cast<int64_t>(problem.requests.size())) {
    return lesson_;
  }
  if (static_cast<int>(plans_.size()) < options_.plans_max) {
    return plans_.emplace_back(std::make_unique<Plan>()).get();
  }
  Plan* const oldest =
      std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
        return a->last_used < b->last_used;
      })->get();
  oldest->lessons = 0;
  return oldest;
}

// Windows that stand in several places of a plan say nothing about where the program is. A plan of
// two iterations has each window twice; either will do. Of several plans the shortest is meant: the
// longer one contains its iteration.
void PlannedPlacement::IndexPlans() {
  std::vector<Plan*> by_period;
  for (const std::unique_ptr<Plan>& plan : plans_) by_period.push_back(plan.get());
  std::stable_sort(by_period.begin(), by_period.end(),
                   [](const Plan* a, const Plan* b) { return a->period < b->period; });
  spots_.clear();
  for (Plan* plan : by_period) {
    for (int64_t first = 0; first < plan->period; ++first) {
      const auto at = [&](int64_t i) { return (first + i) % plan->period; };
      const uint64_t hash =
          PeriodFinder::WindowHash([&](int64_t i) { return plan->requests[at(i)].bytes; });
      const auto [known, is_new] =
          spots_.emplace(hash, Spot{plan, at(PeriodFinder::kWindow - 1), false});
      if (!is_new && known->second.plan == plan) known->second.ambiguous = true;
    }
  }
}

}  // namespace ebbtide
