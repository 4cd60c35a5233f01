// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ebbtide::internal {

LifetimeSearch::LifetimeSearch(const PackProblem& problem)
    : problem_(problem),
      neighbours_(problem.items.size()),
      members_(problem.live.size()),
      weights_(problem.items.size(), 0.0),
      touched_at_(problem.live.size(), 0) {
  for (int i = 0; i < problem.count(); ++i) {
    for (int s = problem.items[i].first; s < problem.items[i].last; ++s) members_[s].push_back(i);
    for (int j = 0; j < problem.count(); ++j) {
      if (i != j && problem.Conflict(i, j)) neighbours_[i].push_back(j);
    }
  }
}

bool LifetimeSearch::Run(int64_t height, const std::vector<int>& order, int64_t max_nodes,
                         int64_t max_steps) {
  height_ = height;
  nodes_ = 0;
  max_nodes_ = max_nodes;
  max_steps_ = steps_ + max_steps;
  Reset(order);
  std::vector<int> ranks(order.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return SolveApart(ranks, 0, -1);
}

void LifetimeSearch::Reset(const std::vector<int>& order) {
  order_ = order;
  placed_.assign(order.size(), 0);
  base_.assign(order.size(), 0);
  offsets_.assign(order.size(), 0);
  lowest_.assign(problem_.live.size(), 0);
  to_come_ = problem_.live;
  crossing_.assign(problem_.live.size() + 1, 0);
  for (const PackItem& item : problem_.items) {
    for (int s = item.first + 1; s < item.last; ++s) ++crossing_[s];
  }
  trail_.clear();
  candidates_.clear();
  // What was in the way long ago matters less than what was just now.
  for (double& weight : weights_) weight *= 0.9;
}

// Buffers whose lifetimes are not joined by one to come no longer limit each other.
bool LifetimeSearch::SolveApart(const std::vector<int>& ranks, int64_t floor, int last_rank) {
  std::vector<int> part_of(problem_.live.size(), 0);
  int parts = 0;
  for (int s = 1; s < problem_.sections(); ++s) {
    if (crossing_[s] == 0) ++parts;
    part_of[s] = parts;
  }
  steps_ += problem_.sections();
  std::vector<std::vector<int>> groups(parts + 1);
  for (int rank : ranks) {
    const int item = order_[rank];
    if (!placed_[item]) groups[part_of[problem_.items[item].first]].push_back(rank);
  }
  // Small ones first: they fail soonest.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].empty() || Solve(groups[i], floor, last_rank)) continue;
    for (size_t solved = 0; solved < i; ++solved) {
      for (int rank : groups[solved]) TakeBack(order_[rank]);
    }
    return false;
  }
  return true;
}

// Pushes what may come next. Not: what lies below `floor` and so was passed over for good (until
// something lifts it), what an equal order of placements already covers, and what lies so high that
// another would fit below it whole.
void LifetimeSearch::Candidates(const std::vector<int>& ranks, int64_t floor, int last_rank) {
  const size_t start = candidates_.size();
  int64_t lowest_top = std::numeric_limits<int64_t>::max();
  for (int rank : ranks) {
    const int item = order_[rank];
    if (placed_[item]) continue;
    const int64_t base = base_[item];
    lowest_top = std::min(lowest_top, std::max(base, floor) + problem_.items[item].units);
    if (base > floor || (base == floor && rank > last_rank)) candidates_.emplace_back(base, rank);
  }
  candidates_.erase(std::remove_if(candidates_.begin() + start, candidates_.end(),
                                   [&](const auto& each) { return each.first >= lowest_top; }),
                    candidates_.end());
  std::sort(candidates_.begin() + start, candidates_.end());
  steps_ += static_cast<int64_t>(ranks.size());
}

bool LifetimeSearch::Solve(const std::vector<int>& ranks, int64_t floor, int last_rank) {
  if (std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return placed_[order_[rank]]; })) {
    return true;
  }
  const size_t start = candidates_.size();
  Candidates(ranks, floor, last_rank);
  const size_t end = candidates_.size();
  bool found = false;
  for (size_t i = start; i < end && !found; ++i) {
    ++nodes_;
    if (Exhausted()) break;
    const auto [offset, rank] = candidates_[i];
    const int item = order_[rank];
    const size_t mark = trail_.size();
    bool apart = false;
    found = Place(item, floor, &apart) &&
            (apart ? SolveApart(ranks, offset, rank) : Solve(ranks, offset, rank));
    if (!found) Undo(item, mark);
  }
  candidates_.resize(start);
  return found;
}

// False when the rest cannot fit any more; Undo is needed either way. `*apart`: the rest may have
// fallen into parts.
bool LifetimeSearch::Place(int item, int64_t floor, bool* apart) {
  const PackItem& placed = problem_.items[item];
  const int64_t offset = base_[item];
  placed_[item] = 1;
  offsets_[item] = offset;
  ++touch_;
  touched_.clear();
  for (int s = placed.first; s < placed.last; ++s) {
    Set(to_come_[s], to_come_[s] - placed.units);
    if (s > placed.first && --crossing_[s] == 0) *apart = true;
    Touch(s);
  }
  steps_ += placed.last - placed.first;
  if (!RaiseNeighbours(item, offset + placed.units)) return false;
  for (int s : touched_) {
    if (!RaiseSection(s)) return false;
  }
  return offset <= floor || FloorFits(item, offset);
}

bool LifetimeSearch::RaiseNeighbours(int item, int64_t top) {
  steps_ += static_cast<int64_t>(neighbours_[item].size());
  for (int other : neighbours_[item]) {
    const int64_t old = base_[other];
    if (placed_[other] || old >= top) continue;
    const PackItem& raised = problem_.items[other];
    Set(base_[other], top);
    if (top + raised.units > height_) {
      weights_[other] += 1;
      return false;
    }
    steps_ += raised.last - raised.first;
    for (int s = raised.first; s < raised.last; ++s) {
      if (lowest_[s] == old) Touch(s);
    }
  }
  return true;
}

bool LifetimeSearch::RaiseSection(int section) {
  if (to_come_[section] == 0) return true;
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (int item : members_[section]) {
    ++steps_;
    if (placed_[item]) continue;
    lowest = std::min(lowest, base_[item]);
    if (lowest == lowest_[section]) break;  // it never falls
  }
  if (lowest > lowest_[section]) Set(lowest_[section], lowest);
  if (lowest + to_come_[section] <= height_) return true;
  Blame(section);
  return false;
}

// Nothing to come in this part of time may lie below `floor` any more: does it fit above?
bool LifetimeSearch::FloorFits(int item, int64_t floor) {
  int first = problem_.items[item].first;
  int last = problem_.items[item].last;
  // The part as it was before `item` was placed.
  while (first > 0 && crossing_[first] > 0) --first;
  while (last < problem_.sections() && crossing_[last] > 0) ++last;
  steps_ += last - first;
  for (int s = first; s < last; ++s) {
    if (to_come_[s] == 0 || floor + to_come_[s] <= height_) continue;
    Blame(s);
    return false;
  }
  return true;
}

void LifetimeSearch::Blame(int section) {
  for (int item : members_[section]) {
    if (!placed_[item]) weights_[item] += 1;
  }
}

void LifetimeSearch::TakeBack(int item) {
  placed_[item] = 0;
  for (int s = problem_.items[item].first + 1; s < problem_.items[item].last; ++s) ++crossing_[s];
}

void LifetimeSearch::Undo(int item, size_t mark) {
  TakeBack(item);
  for (; trail_.size() > mark; trail_.pop_back()) *trail_.back().first = trail_.back().second;
}

}  // namespace ebbtide::internal
