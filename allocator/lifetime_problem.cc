// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_problem.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace ebbtide::internal {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// The begin of each section: an instant where something begins and, before anything else does,
// something ends.
std::vector<int64_t> SectionStarts(absl::Span<const Lifetime> lifetimes,
                                   const std::vector<int>& source) {
  std::vector<std::pair<int64_t, int>> events;
  events.reserve(2 * source.size());
  for (int index : source) {
    events.emplace_back(lifetimes[index].begin, 1);
    events.emplace_back(lifetimes[index].end, 0);
  }
  std::sort(events.begin(), events.end());
  std::vector<int64_t> starts;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i].second == 1 && events[i + 1].second == 0) starts.push_back(events[i].first);
  }
  return starts;
}

// The best gap between buffers seen from low to high.
struct GapFinder {
  int64_t units;
  int64_t end = 0;
  int64_t best = kNone;
  int64_t best_gap = kNone;

  void See(int64_t low, int64_t high) {
    const int64_t gap = low - end;
    if (gap >= units && gap < best_gap) {
      best_gap = gap;
      best = end;
    }
    end = std::max(end, high);
  }
  int64_t Place() const { return best == kNone ? end : best; }
};

}  // namespace

PackProblem::PackProblem(absl::Span<const Lifetime> lifetimes, int64_t alignment) {
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    if (lifetimes[i].bytes > 0 && lifetimes[i].begin < lifetimes[i].end) {
      source.push_back(static_cast<int>(i));
    }
  }
  const std::vector<int64_t> starts = SectionStarts(lifetimes, source);
  const auto section = [&](int64_t time) {
    return static_cast<int>(std::lower_bound(starts.begin(), starts.end(), time) - starts.begin());
  };
  const auto item = [&](int index) {
    const Lifetime& from = lifetimes[index];
    return PackItem{
        section(from.begin), section(from.end),     (from.bytes - 1) / alignment + 1,
        from.begin,          from.end - from.begin, from.fixed < 0 ? -1 : from.fixed / alignment};
  };
  std::sort(source.begin(), source.end(), [&](int a, int b) {
    const PackItem x = item(a), y = item(b);
    return std::tie(x.first, x.last, x.units, a) < std::tie(y.first, y.last, y.units, b);
  });
  live.assign(starts.size() + 1, 0);
  for (int index : source) {
    items.push_back(item(index));
    live[items.back().first] += items.back().units;
    live[items.back().last] -= items.back().units;
    if (items.back().fixed >= 0) {
      fixed_top = std::max(fixed_top, items.back().fixed + items.back().units);
    }
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  for (int64_t units : live) max_live = std::max(max_live, units);
  for (PackItem& each : items) {
    each.contention = *std::max_element(live.begin() + each.first, live.begin() + each.last);
  }
}

std::vector<std::vector<int>> PackProblem::Parts() const {
  std::vector<int> crossing(live.size() + 1);  // how many span sections i - 1 and i
  for (const PackItem& item : items) {
    ++crossing[item.first + 1];
    --crossing[item.last];
  }
  std::partial_sum(crossing.begin(), crossing.end(), crossing.begin());
  std::vector<std::vector<int>> parts;
  for (int i = 0; i < count(); ++i) {
    const int first = items[i].first;
    const bool apart = crossing[first] == 0 && (i == 0 || items[i - 1].first != first);
    if (apart) parts.emplace_back();
    parts.back().push_back(i);
  }
  return parts;
}

int64_t PackProblem::Height(const std::vector<int64_t>& offsets) const {
  int64_t height = 0;
  for (int i = 0; i < count(); ++i) height = std::max(height, offsets[i] + items[i].units);
  return height;
}

std::vector<int64_t> PackBySweep(const PackProblem& problem) {
  const std::vector<PackItem>& items = problem.items;
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    if (items[a].first != items[b].first) return items[a].first < items[b].first;
    if (items[a].last != items[b].last) return items[a].last > items[b].last;
    return items[a].units != items[b].units ? items[a].units > items[b].units : a < b;
  });
  std::vector<int64_t> offsets(items.size());
  const auto by_offset = [&](int a, int b) { return offsets[a] < offsets[b]; };
  std::vector<int> fixed;  // by offset, like the next two
  for (int i : order) {
    if (items[i].fixed < 0) continue;
    offsets[i] = items[i].fixed;
    fixed.push_back(i);
  }
  std::stable_sort(fixed.begin(), fixed.end(), by_offset);
  std::vector<int> live, around;
  for (int next : order) {
    std::erase_if(live, [&](int i) { return items[i].last <= items[next].first; });
    std::erase_if(fixed, [&](int i) { return i == next; });
    if (items[next].fixed < 0) {
      around.clear();
      std::merge(live.begin(), live.end(), fixed.begin(), fixed.end(), std::back_inserter(around),
                 by_offset);
      GapFinder gap{items[next].units};
      for (int i : around) {
        if (problem.Conflict(i, next)) gap.See(offsets[i], offsets[i] + items[i].units);
      }
      offsets[next] = gap.Place();
    }
    live.insert(std::upper_bound(live.begin(), live.end(), next, by_offset), next);
  }
  return offsets;
}

std::vector<int64_t> PackInOrder(const PackProblem& problem, const std::vector<int>& order) {
  struct Placed {
    int64_t low, high;
    int first, last;
  };
  std::vector<int64_t> offsets(problem.items.size());
  std::vector<Placed> placed;  // by offset
  placed.reserve(order.size());
  const auto place = [&](int next) {
    const PackItem& item = problem.items[next];
    int64_t low = item.fixed;
    if (low < 0) {
      GapFinder gap{item.units};
      for (const Placed& other : placed) {
        if (other.first < item.last && item.first < other.last) gap.See(other.low, other.high);
      }
      low = gap.Place();
    }
    offsets[next] = low;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), low,
                                   [](int64_t at, const Placed& other) { return at < other.low; }),
                  Placed{low, low + item.units, item.first, item.last});
  };
  for (int i : order) {
    if (problem.items[i].fixed >= 0) place(i);
  }
  for (int i : order) {
    if (problem.items[i].fixed < 0) place(i);
  }
  return offsets;
}

std::vector<int64_t> PressDown(const PackProblem& problem, const std::vector<int64_t>& before) {
  std::vector<int> order(before.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return before[a] != before[b] ? before[a] < before[b] : a < b; });
  std::vector<int64_t> tops(problem.live.size());  // of each section
  std::vector<int64_t> offsets(order.size());
  for (int i : order) {
    const auto first = tops.begin() + problem.items[i].first;
    const auto last = tops.begin() + problem.items[i].last;
    const int64_t fixed = problem.items[i].fixed;
    offsets[i] = fixed >= 0 ? fixed : *std::max_element(first, last);
    std::fill(first, last, offsets[i] + problem.items[i].units);
  }
  return offsets;
}

}  // namespace ebbtide::internal
