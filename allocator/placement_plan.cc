// SPDX-License-Identifier: Apache-2.0
#include "allocator/placement_plan.h"

#include <algorithm>
#include <numeric>

#include "allocator/lifetime_packer.h"
#include "allocator/pushdown_packer.h"
#include "base/check.h"

namespace ebbtide {
namespace {

using Requests = std::vector<CyclicRequest>;

// A plan that is higher than the most that lives by less than this part of it is not improved.
constexpr int64_t kGoodEnough = 512;

// Two iterations, if something lives longer than one and not longer than two.
Requests Unroll(absl::Span<const CyclicRequest> requests) {
  const auto n = static_cast<int64_t>(requests.size());
  Requests unrolled(requests.begin(), requests.end());
  if (std::any_of(requests.begin(), requests.end(), [n](const CyclicRequest& each) {
        return each.bytes > 0 && each.length > n && each.length <= 2 * n;
      })) {
    unrolled.insert(unrolled.end(), requests.begin(), requests.end());
  }
  return unrolled;
}

// The planned bytes, rounded up, that live across the instant before each request.
std::vector<int64_t> LiveBefore(const Requests& requests, int64_t alignment) {
  const size_t n = requests.size();
  std::vector<int64_t> live(2 * n + 1);
  for (size_t i = 0; i < n; ++i) {
    if (requests[i].length > static_cast<int64_t>(n)) continue;
    const int64_t bytes = (requests[i].bytes + alignment - 1) / alignment * alignment;
    live[i + 1] += bytes;
    live[i + requests[i].length] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  for (size_t i = 0; i < n; ++i) live[i] += live[i + n];
  live.resize(n);
  return live;
}

class Planner {
 public:
  Planner(Requests requests, const PlanOptions& options)
      : requests_(std::move(requests)),
        options_(options),
        count_(static_cast<int64_t>(requests_.size())) {
    plan_.requests.resize(requests_.size());
    const std::vector<int64_t> live = LiveBefore(requests_, options.alignment);
    // Where the circle is cut: there the least is live, and so the least is in the way.
    cut_ = std::min_element(live.begin(), live.end()) - live.begin();
    for (int64_t i = 0; i < count_; ++i) {
      plan_.requests[i].bytes = requests_[i].bytes;
      if (requests_[i].length > count_ || requests_[i].bytes == 0) continue;
      planned_.push_back(i);
      plan_.peak_bytes = std::max(plan_.peak_bytes, live[i] + Rounded(i));
    }
  }

  PlacementPlan Plan() {
    StackCrossing();
    Keep(PackByPushdown(Whole(), options_.alignment));
    const int64_t steps = options_.max_steps - StepsBeforeSearch();
    if (plan_.height > plan_.peak_bytes + plan_.peak_bytes / kGoodEnough && steps >= 0) {
      Keep(PackLifetimes(InPieces(), {.alignment = options_.alignment, .max_steps = steps}));
    }
    return std::move(plan_);
  }

 private:
  // What PackLifetimes does before it counts steps, as measured: it sorts, and looks at each pair
  // that lives together. Where that is too much, pushdown must do.
  int64_t StepsBeforeSearch() const {
    int64_t steps = 500 * count_;
    for (int64_t i : planned_) steps += 4 * requests_[i].length;
    return steps;
  }
  int64_t Begin(int64_t i) const { return (i - cut_ + count_) % count_; }
  bool Crosses(int64_t i) const { return Begin(i) + requests_[i].length > count_; }
  int64_t Rounded(int64_t i) const {
    return (requests_[i].bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
  }

  // What lives across the cut lies at the bottom, the longest lived lowest: what is free for some
  // time then borders on what is above.
  void StackCrossing() {
    std::vector<int64_t> crossing;
    std::copy_if(planned_.begin(), planned_.end(), std::back_inserter(crossing),
                 [&](int64_t i) { return Crosses(i); });
    std::stable_sort(crossing.begin(), crossing.end(), [&](int64_t a, int64_t b) {
      return requests_[a].length > requests_[b].length;
    });
    crossing_offset_.assign(count_, -1);
    int64_t top = 0;
    for (int64_t i : crossing) {
      crossing_offset_[i] = top;
      top += Rounded(i);
    }
  }

  std::vector<Lifetime> Whole() const {
    std::vector<Lifetime> lifetimes;
    for (int64_t i : planned_) {
      lifetimes.push_back(
          Crosses(i) ? Lifetime{0, count_, requests_[i].bytes}
                     : Lifetime{Begin(i), Begin(i) + requests_[i].length, requests_[i].bytes});
    }
    return lifetimes;
  }

  // As Whole, but what crosses the cut is free between its two pieces; the second ones come last.
  std::vector<Lifetime> InPieces() const {
    std::vector<Lifetime> lifetimes = Whole(), seconds;
    for (size_t k = 0; k < planned_.size(); ++k) {
      const int64_t i = planned_[k];
      if (!Crosses(i)) continue;
      lifetimes[k].end = Begin(i) + requests_[i].length - count_;
      lifetimes[k].fixed = crossing_offset_[i];
      seconds.push_back({Begin(i), count_, requests_[i].bytes, crossing_offset_[i]});
    }
    lifetimes.insert(lifetimes.end(), seconds.begin(), seconds.end());
    return lifetimes;
  }

  void Keep(const Packing& packing) {
    if (plan_.height > 0 && packing.height >= plan_.height) return;
    plan_.height = packing.height;
    for (size_t k = 0; k < planned_.size(); ++k) {
      plan_.requests[planned_[k]].offset = packing.offsets[k];
    }
  }

  const Requests requests_;
  const PlanOptions options_;
  const int64_t count_;
  int64_t cut_ = 0;
  std::vector<int64_t> planned_;          // indices
  std::vector<int64_t> crossing_offset_;  // of each request, or -1
  PlacementPlan plan_;
};

}  // namespace

PlacementPlan PlanPlacements(absl::Span<const CyclicRequest> requests, const PlanOptions& options) {
  EBB_CHECK(options.alignment > 0) << options.alignment;
  for (const CyclicRequest& each : requests) {
    EBB_CHECK(each.bytes >= 0 && each.length > 0) << each.bytes << ", " << each.length;
  }
  if (requests.empty()) return {};
  return Planner(Unroll(requests), options).Plan();
}

}  // namespace ebbtide
