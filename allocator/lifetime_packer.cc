// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_packer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "allocator/lifetime_problem.h"
#include "allocator/lifetime_search.h"
#include "base/check.h"

namespace ebbtide {
namespace internal {
namespace {

// The search keeps a list of conflicts: above this it would cost more than it gains.
constexpr int kSearchItemsMax = 2048;

// Numbers in [0, 1) that are the same everywhere (splitmix64).
class Draws {
 public:
  double Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_ = 1;
};

std::vector<int> OrderByKey(const std::vector<double>& keys) {
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; });
  return order;
}

class Packer {
 public:
  Packer(const PackProblem& problem, int64_t capacity, int64_t max_steps)
      : problem_(problem), target_(std::max(capacity, problem.max_live)), max_steps_(max_steps) {}

  std::vector<int64_t> Pack() {
    Keep(PackBySweep(problem_));
    Greedy();
    if (height_ > target_ && problem_.count() <= kSearchItemsMax) Improve();
    return std::move(best_);
  }

 private:
  void Keep(std::vector<int64_t> offsets) {
    const int64_t height = problem_.Height(offsets);
    if (!best_.empty() && height >= height_) return;
    best_ = std::move(offsets);
    height_ = height;
  }

  void Greedy() {
    const std::function<double(const PackItem&)> keys[] = {
        [](const PackItem& item) { return Log(item.units) + Log(item.length); },
        [](const PackItem& item) { return 64 * Log(item.contention) + Log(item.length); },
        [](const PackItem& item) { return 64 * Log(item.length) + Log(item.units); },
        [](const PackItem& item) { return 64 * Log(item.units) + Log(item.length); },
    };
    const int64_t cost = int64_t{problem_.count()} * problem_.count() / 2;
    std::vector<double> values(problem_.items.size());
    for (const auto& key : keys) {
      if (height_ <= target_ || steps_ + cost > max_steps_) return;
      std::transform(problem_.items.begin(), problem_.items.end(), values.begin(), key);
      Keep(PackInOrder(problem_, OrderByKey(values)));
      steps_ += cost;
    }
  }

  // Many short tries, since how long one takes is spread over orders of magnitude. Each aims
  // somewhere between the target and the best so far; the weights of what was in the way pass from
  // each to the next.
  void Improve() {
    const int64_t pairs = int64_t{problem_.count()} * problem_.count();
    if (steps_ + pairs > max_steps_) return;
    steps_ += pairs;
    LifetimeSearch search(problem_);
    Draws draws;
    while (height_ > target_ && steps_ + search.steps() < max_steps_) {
      const int64_t aim = target_ + static_cast<int64_t>(0.98 * draws.Next() * (height_ - target_));
      const int64_t nodes = problem_.count() * 3 / 2;
      const std::vector<int> order = NextOrder(search.weights(), draws);
      if (search.Run(aim, order, nodes, max_steps_ - steps_ - search.steps())) {
        Keep(search.offsets());
      }
    }
  }

  static double Log(int64_t x) { return std::log(static_cast<double>(x)); }

  // Long lifetimes first, then large ones and those in the most crowded sections, to a degree that
  // changes from try to try, and raised by what was in the way.
  std::vector<int> NextOrder(const std::vector<double>& weights, Draws& draws) const {
    const double size_power = draws.Next();
    const double crowd_power = draws.Next() < 0.3 ? 20 : 0;
    const double weight_power = draws.Next() < 0.5 ? 1 : 4;
    const double noise = 0.2 * draws.Next();
    const double scale = 10 / std::max(1e-9, *std::max_element(weights.begin(), weights.end()));
    std::vector<double> keys(weights.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const PackItem& item = problem_.items[i];
      keys[i] = Log(item.length) + size_power * Log(item.units) +
                crowd_power * Log(item.contention) + weight_power * std::log1p(scale * weights[i]) +
                noise * (draws.Next() + draws.Next() - 1);
    }
    return OrderByKey(keys);
  }

  const PackProblem& problem_;
  const int64_t target_;  // units; good enough
  const int64_t max_steps_;
  int64_t steps_ = 0;
  std::vector<int64_t> best_;
  int64_t height_ = 0;
};

}  // namespace
}  // namespace internal

int64_t MaxLiveBytes(absl::Span<const Lifetime> lifetimes, int64_t alignment) {
  return internal::PackProblem(lifetimes, alignment).max_live * alignment;
}

Packing PackLifetimes(absl::Span<const Lifetime> lifetimes, const PackOptions& options) {
  EBB_CHECK(options.alignment > 0) << options.alignment;
  Packing packing;
  packing.offsets.assign(lifetimes.size(), 0);
  const internal::PackProblem problem(lifetimes, options.alignment);
  if (problem.count() > 0) {
    internal::Packer packer(problem, options.capacity / options.alignment, options.max_steps);
    const std::vector<int64_t> units = packer.Pack();
    for (int i = 0; i < problem.count(); ++i) {
      packing.offsets[problem.source[i]] = units[i] * options.alignment;
    }
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    EBB_CHECK(lifetimes[i].bytes >= 0) << "lifetime " << i;
    packing.height = std::max(packing.height, packing.offsets[i] + lifetimes[i].bytes);
  }
  return packing;
}

}  // namespace ebbtide
