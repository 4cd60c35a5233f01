// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_packer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "allocator/lifetime_problem.h"
#include "allocator/lifetime_search.h"
#include "base/check.h"

namespace ebbtide {
namespace internal {
namespace {

// The search keeps this many numbers for what lives in each section; 16 MiB.
constexpr int64_t kSearchCellsMax = 1 << 22;
// Tries at one height before another is aimed at.
constexpr int kTriesAtOnce = 12;

std::vector<int> OrderByKey(const std::vector<double>& keys) {
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; });
  return order;
}

double Log(int64_t x) { return std::log(static_cast<double>(x)); }

using Key = double (*)(const PackItem&);
constexpr Key kGreedyKeys[] = {
    [](const PackItem& item) { return Log(item.units) + Log(item.length); },
    [](const PackItem& item) { return 64 * Log(item.contention) + Log(item.length); },
    [](const PackItem& item) { return 64 * Log(item.length) + Log(item.units); },
    [](const PackItem& item) { return 64 * Log(item.units) + Log(item.length); },
};

// A stretch of time that shares no buffer with the rest. Heights and offsets in units of the
// alignment.
class Part {
 public:
  explicit Part(std::vector<Lifetime> lifetimes)
      : lifetimes_(std::move(lifetimes)), problem_(lifetimes_, 1) {
    Keep(PackBySweep(problem_));
  }

  // Of each of the lifetimes given.
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> offsets(lifetimes_.size());
    for (int i = 0; i < problem_.count(); ++i) offsets[problem_.source[i]] = best_[i];
    return offsets;
  }
  int64_t height() const { return height_; }
  bool exhausted() const { return exhausted_; }  // Improve can do no more

  // One move to get lower; adds what it took to `*steps`.
  void Improve(int64_t target, int64_t max_steps, int64_t* steps) {
    target = std::max({target, problem_.max_live, problem_.fixed_top});
    if (height_ <= target) {
      exhausted_ = true;
    } else if (next_key_ < std::size(kGreedyKeys)) {
      Greedy(kGreedyKeys[next_key_++], max_steps, steps);
    } else if (search_ != nullptr || StartSearch(steps)) {
      Search(target, max_steps, steps);
    } else {
      exhausted_ = true;
    }
  }

 private:
  void Keep(std::vector<int64_t> offsets) {
    const int64_t height = problem_.Height(offsets);
    if (!best_.empty() && height >= height_) return;
    best_ = std::move(offsets);
    height_ = height;
  }

  void Greedy(Key key, int64_t max_steps, int64_t* steps) {
    const int64_t cost = int64_t{problem_.count()} * problem_.count() / 2;
    if (*steps + cost > max_steps) return;
    *steps += cost;
    std::vector<double> values(problem_.items.size());
    std::transform(problem_.items.begin(), problem_.items.end(), values.begin(), key);
    Keep(PackInOrder(problem_, OrderByKey(values)));
  }

  // The search counts in 32 bits. What is larger is rounded up for it to what fits, by less than a
  // part in 2^27 of the height for each buffer.
  bool StartSearch(int64_t* steps) {
    int64_t cells = 0;
    for (const PackItem& item : problem_.items) cells += item.last - item.first;
    if (cells > kSearchCellsMax) return false;
    *steps += cells;
    while (height_ >> shift_ > LifetimeSearch::kHeightMax / 2) ++shift_;
    if (shift_ > 0 && problem_.fixed_top > 0) return false;  // what is decided cannot be rounded
    if (shift_ > 0) coarse_ = std::make_unique<PackProblem>(lifetimes_, int64_t{1} << shift_);
    search_ = std::make_unique<LifetimeSearch>(coarse_ != nullptr ? *coarse_ : problem_);
    return true;
  }

  // Mostly aims at the target itself: what cannot be reached fails soon. In between, and so that
  // something is gained where it cannot be reached, it aims at heights on the way.
  void Search(int64_t target, int64_t max_steps, int64_t* steps) {
    if (tries_++ % kTriesAtOnce == 0) {
      const int64_t gap = height_ - target;
      const int64_t above[] = {target / 64, 0, gap / 2, 0};
      aim_ = target + std::min(gap - 1, above[rounds_ % 4]);
      ++rounds_;
    }
    const int64_t least = coarse_ != nullptr ? coarse_->max_live : problem_.max_live;
    const int64_t before = search_->steps();
    if (search_->Try(std::max(least, aim_ >> shift_), before + max_steps - *steps)) {
      Keep(PressDown(problem_, search_->offsets()));
      tries_ = 0;
    }
    *steps += search_->steps() - before;
  }

  const std::vector<Lifetime> lifetimes_;  // of units in place of bytes
  const PackProblem problem_;
  std::vector<int64_t> best_;  // of each item of the problem
  int64_t height_ = 0;
  size_t next_key_ = 0;
  int shift_ = 0;                        // of the search's units
  std::unique_ptr<PackProblem> coarse_;  // in these, if they differ
  std::unique_ptr<LifetimeSearch> search_;
  int64_t aim_ = 0;
  int tries_ = 0, rounds_ = 0;
  bool exhausted_ = false;
};

// Offsets of `problem`'s items. Only the highest part is worth a step.
std::vector<int64_t> PackApart(const PackProblem& problem, int64_t target, int64_t max_steps) {
  if (problem.count() == 0) return {};
  const std::vector<std::vector<int>> groups = problem.Parts();
  std::vector<std::unique_ptr<Part>> parts;
  for (const std::vector<int>& group : groups) {
    std::vector<Lifetime> lifetimes;
    for (int i : group) {
      const PackItem& item = problem.items[i];
      lifetimes.push_back({item.begin, item.begin + item.length, item.units, item.fixed});
    }
    parts.push_back(std::make_unique<Part>(std::move(lifetimes)));
  }
  for (int64_t steps = 0; steps < max_steps;) {
    Part& highest =
        **std::max_element(parts.begin(), parts.end(),
                           [](const auto& a, const auto& b) { return a->height() < b->height(); });
    if (highest.height() <= target || highest.exhausted()) break;
    highest.Improve(target, max_steps, &steps);
    steps += static_cast<int64_t>(parts.size());
  }
  std::vector<int64_t> offsets(problem.items.size());
  for (size_t k = 0; k < parts.size(); ++k) {
    const std::vector<int64_t> apart = parts[k]->offsets();
    for (size_t i = 0; i < apart.size(); ++i) offsets[groups[k][i]] = apart[i];
  }
  return offsets;
}

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
  const int64_t target = std::max(options.capacity / options.alignment, problem.max_live);
  const std::vector<int64_t> units = internal::PackApart(problem, target, options.max_steps);
  for (int i = 0; i < problem.count(); ++i) {
    packing.offsets[problem.source[i]] = units[i] * options.alignment;
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    EBB_CHECK(lifetimes[i].bytes >= 0) << "lifetime " << i;
    packing.height = std::max(packing.height, packing.offsets[i] + lifetimes[i].bytes);
  }
  return packing;
}

}  // namespace ebbtide
