// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace ebbtide::internal {
namespace {

// Found by trial on minimalloc's problems; a factor of two either way costs little.
constexpr int kWidth = 3;            // states kept
constexpr int kChildren = 4;         // placements after which a state leaves no more places open
constexpr int kChildrenMax = 8;      // placements from a state
constexpr int kLeftOpen = 3;         // places that a step may leave open
constexpr int kForgetEvery = 16;
constexpr double kRule = 0.5;
constexpr double kLearning = 0.1;    // how much of the weights a try replaces
constexpr double kBlameWeight = 4;   // what was most in the way weighs so much more
constexpr int32_t kPlaced = 1 << 29;

// x to the power of quarters / 4, from operations that are rounded alike everywhere.
double InQuarters(double x, int quarters) {
  const double root = std::sqrt(std::sqrt(x));
  double power = 1;
  for (; quarters > 0; --quarters) power *= root;
  return power;
}

}  // namespace

LifetimeSearch::LifetimeSearch(const PackProblem& problem)
    : problem_(problem),
      count_(problem.count()),
      sections_(problem.sections()),
      stride_((count_ + 4 * sections_ + 15) / 16 * 16),
      begins_(sections_ + 1, count_),
      members_(sections_),
      limits_(count_),
      priorities_(count_),
      losses_(sections_),
      cells_(static_cast<size_t>(kWidth) * stride_),
      next_cells_(cells_.size()),
      scratch_(stride_),
      offsets_(count_),
      item_blame_(count_),
      section_blame_(sections_),
      item_weights_(count_, 1),
      section_weights_(sections_, 1) {
  Draws names;
  for (int i = 0; i < count_; ++i) {
    const PackItem& item = problem.items[i];
    units_.push_back(static_cast<int32_t>(item.units));
    first_.push_back(item.first);
    last_.push_back(item.last);
    names_.push_back(names.NextBits());
    for (int s = item.first; s < item.last; ++s) members_[s].push_back(i);
    begins_[item.first] = std::min(begins_[item.first], i);
  }
  for (int s = sections_ - 1; s >= 0; --s) begins_[s] = std::min(begins_[s], begins_[s + 1]);
  for (int i = 0; i < count_; ++i) {
    int begin = first_[i], end = last_[i];
    for (int s : {first_[i], last_[i] - 1}) {
      for (int j : members_[s]) {
        begin = std::min(begin, first_[j]);
        end = std::max(end, last_[j]);
      }
    }
    for (int s = first_[i] + 1; s < last_[i]; ++s) {
      for (int j : members_[s]) end = std::max(end, last_[j]);
    }
    near_begin_.push_back(members_[first_[i]].front());
    near_end_.push_back(begins_[last_[i]]);
    reach_begin_.push_back(begin);
    reach_end_.push_back(end);
  }
}

LifetimeSearch::Space LifetimeSearch::At(std::vector<int32_t>& cells, int index) const {
  int32_t* const base = cells.data() + static_cast<size_t>(index) * stride_;
  int32_t* const floor = base + count_;
  return {base, floor, floor + sections_, floor + 2 * sections_, floor + 3 * sections_};
}

bool LifetimeSearch::Try(int64_t height, Draws& draws) {
  EBB_CHECK(problem_.max_live <= height && height < kHeightMax) << height;
  height_ = static_cast<int32_t>(height);
  Weigh(draws);
  Start();
  for (int placed = 0; placed < count_; ++placed) {
    if (Advance()) continue;
    Learn();
    return false;
  }
  for (int link = states_.front().link; link >= 0; link = links_[link].parent) {
    offsets_[links_[link].item] = links_[link].offset;
  }
  return true;
}

// What this try prefers. A unit lost costs by how many its section can spare. Priorities mostly
// break ties, between placements that lose nothing.
void LifetimeSearch::Weigh(Draws& draws) {
  rule_ = draws.Next() < kRule;
  const double spare = height_ * (0.005 + 0.04 * draws.Next());
  const int length_power = static_cast<int>(6 * draws.Next());
  const int units_power = static_cast<int>(6 * draws.Next());
  const double share = std::ldexp(1, -3 - static_cast<int>(11 * draws.Next()));
  const double noise = 0.5 * draws.Next();
  double sum = 0;
  for (int i = 0; i < count_; ++i) {
    limits_[i] = height_ - units_[i];
    priorities_[i] = item_weights_[i] * item_weights_[i] *
                     InQuarters(last_[i] - first_[i], length_power) *
                     InQuarters(units_[i], units_power) * (1 + noise * (draws.Next() - 0.5));
    sum += priorities_[i];
  }
  for (double& priority : priorities_) priority *= share / sum;
  for (int s = 0; s < sections_; ++s) {
    const double slack = height_ - static_cast<double>(problem_.live[s]);
    losses_[s] = section_weights_[s] / ((slack + spare) * sections_);
  }
}

void LifetimeSearch::Start() {
  states_.assign(1, State{0, 0, -1});
  links_.clear();
  to_come_ = members_;
  depth_ = 0;
  const Space space = At(cells_, 0);
  std::fill_n(space.base, count_, 0);
  std::fill_n(space.floor, sections_, 0);
  for (int s = 0; s < sections_; ++s) {
    space.to_come[s] = static_cast<int32_t>(problem_.live[s]);
    space.lowest[s] = members_[s].front();
    space.second[s] = members_[s].back();
  }
}

// Each state takes one more buffer; false when all have died.
bool LifetimeSearch::Advance() {
  children_.clear();
  lifts_.clear();
  for (size_t i = 0; i < states_.size(); ++i) Expand(static_cast<int>(i));
  std::sort(children_.begin(), children_.end(), [](const Child& a, const Child& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.placed < b.placed;
  });
  next_states_.clear();
  for (const Child& child : children_) {
    if (next_states_.size() == kWidth) break;
    // The same buffers placed at a higher cost.
    if (std::any_of(next_states_.begin(), next_states_.end(),
                    [&](const State& state) { return state.placed == child.placed; })) {
      continue;
    }
    State next;
    if (Adopt(child, &next)) next_states_.push_back(next);
  }
  states_.swap(next_states_);
  cells_.swap(next_cells_);
  if (states_.empty()) return false;
  if (++depth_ % kForgetEvery == 0) Forget();
  return true;
}

// Takes what all states have placed out of the lists that Look goes through.
void LifetimeSearch::Forget() {
  for (std::vector<int>& members : to_come_) {
    steps_ += members.size();
    members.erase(std::remove_if(members.begin(), members.end(),
                                 [&](int i) {
                                   for (size_t k = 0; k < states_.size(); ++k) {
                                     if (At(cells_, static_cast<int>(k)).base[i] != kPlaced) return false;
                                   }
                                   return true;
                                 }),
                  members.end());
  }
}

// Lists what may come next: the buffers that fit the lowest place, the earliest of those; and, with
// that left open, those that fit the then lowest.
void LifetimeSearch::Expand(int index) {
  Space space = At(cells_, index);
  const State& state = states_[index];
  const int lifts_begin = static_cast<int>(lifts_.size());
  double cost = state.cost;
  int made = 0;
  for (int left_open = 0;; ++left_open) {
    const int section = rule_ ? FirstValley(space) : LowestValley(space);
    const int32_t level = space.floor[section];
    steps_ += sections_ / 4;
    int last = -1;
    // Whatever can rest at `level` begins here, else the place would reach further to the left.
    for (int i = begins_[section]; i < begins_[section + 1] && made < kChildrenMax; ++i) {
      if (space.base[i] != level) continue;
      const bool twin = last >= 0 && last_[last] == last_[i] && units_[last] == units_[i];
      last = i;
      if (twin) continue;
      children_.push_back({cost - priorities_[i], state.placed ^ names_[i], index, i, lifts_begin,
                           static_cast<int>(lifts_.size())});
      ++made;
    }
    if (made >= kChildren || left_open + 1 == kLeftOpen) return;
    if (left_open == 0) {
      std::memcpy(scratch_.data(), space.base, stride_ * sizeof(int32_t));
      space = At(scratch_, 0);
    }
    if (!LeaveOpen(space, section, level, &cost)) return;
  }
}

// The first section of the lowest place, the earliest of those.
int LifetimeSearch::LowestValley(const Space& space) {
  int32_t level = kPlaced;
  for (int s = 0; s < sections_; ++s) level = std::min(level, space.floor[s]);
  return static_cast<int>(std::find(space.floor, space.floor + sections_, level) - space.floor);
}

// The first section of the earliest place that is lower than those around it.
int LifetimeSearch::FirstValley(const Space& space) {
  int valley = 0;
  for (int s = 1; s < sections_; ++s) {
    if (space.floor[s] > space.floor[s - 1] && space.floor[valley] != kPlaced) break;
    if (space.floor[s] < space.floor[s - 1]) valley = s;
  }
  return valley;
}

// Nothing rests at `level` in `section`: what could have, rests on something that begins later, or
// on what is lifted with it. False when the rest cannot fit any more.
bool LifetimeSearch::LeaveOpen(const Space& space, int section, int32_t level, double* cost) {
  const size_t lifts_begin = lifts_.size();
  int32_t floor = kPlaced;
  int last = section;
  for (int i = begins_[section]; i < begins_[section + 1]; ++i) {
    if (space.base[i] != level) continue;
    int32_t base = kPlaced;
    for (int j = begins_[section + 1]; j < begins_[last_[i]]; ++j) {
      base = std::min(base, space.base[j] + units_[j]);
    }
    steps_ += (begins_[last_[i]] - begins_[section + 1]) / 4;
    lifts_.push_back({i, base});
    last = std::max(last, last_[i]);
    floor = std::min(floor, base);
  }
  for (int i : to_come_[section]) {
    if (space.base[i] != level) floor = std::min(floor, space.base[i]);
  }
  if (floor > height_ - space.to_come[section]) {
    BlameSection(space, section);
    return false;
  }
  for (size_t k = lifts_begin; k < lifts_.size(); ++k) {
    Lift& lift = lifts_[k];
    if (lift.base == kPlaced) lift.base = floor;
    if (lift.base > limits_[lift.item]) {
      BlameItem(lift.item);
      return false;
    }
    space.base[lift.item] = lift.base;
  }
  return Settle(space, section, last, cost);
}

bool LifetimeSearch::Adopt(const Child& child, State* next) {
  const State& parent = states_[child.parent];
  const Space space = At(next_cells_, static_cast<int>(next_states_.size()));
  std::memcpy(space.base, At(cells_, child.parent).base, stride_ * sizeof(int32_t));
  steps_ += stride_ / 16;
  double cost = parent.cost - priorities_[child.item];
  int first = sections_, last = 0;
  for (int k = child.lifts_begin; k < child.lifts_end; ++k) {
    const Lift& lift = lifts_[k];
    space.base[lift.item] = std::max(space.base[lift.item], lift.base);
    first = std::min(first, first_[lift.item]);
    last = std::max(last, last_[lift.item]);
  }
  if (!Settle(space, first, last, &cost)) return false;
  const int32_t offset = space.base[child.item];
  if (!Place(space, child.item, &cost)) return false;
  *next = {cost, child.placed, static_cast<int>(links_.size())};
  links_.push_back({parent.link, child.item, offset});
  return true;
}

// False when the rest cannot fit any more.
bool LifetimeSearch::Place(const Space& space, int item, double* cost) {
  const int32_t top = space.base[item] + units_[item];
  const int first = first_[item], last = last_[item];
  space.base[item] = kPlaced;
  for (int s = first; s < last; ++s) {
    space.to_come[s] -= units_[item];
    space.floor[s] = space.to_come[s] == 0 ? kPlaced : space.floor[s] + units_[item];
  }
  const int begin = near_begin_[item], end = near_end_[item];
  // Without branches, so that the compiler can make vectors of it.
  int32_t too_high = 0;
  for (int j = begin; j < end; ++j) {
    const int32_t old = space.base[j];
    const int32_t raised = -static_cast<int32_t>((last_[j] > first) & (old < top));
    space.base[j] = old ^ ((old ^ top) & raised);
    too_high |= raised & -static_cast<int32_t>(top > limits_[j]);
  }
  steps_ += (end - begin) / 4 + (last - first);
  if (too_high != 0) {
    for (int j = begin; j < end; ++j) {
      if (space.base[j] == top && top > limits_[j]) BlameItem(j);
    }
    return false;
  }
  return Settle(space, reach_begin_[item], reach_end_[item], cost);
}

// Brings the floors of sections [first, last) up to the bases, and those that this raises.
bool LifetimeSearch::Settle(const Space& space, int first, int last, double* cost) {
  while (first < last) {
    int again_first = sections_, again_last = 0;
    steps_ += last - first;
    for (int s = first; s < last; ++s) {
      const int32_t floor = space.floor[s];
      if (floor == kPlaced) continue;
      const int32_t highest = height_ - space.to_come[s];  // where the lowest may lie
      if (space.base[space.lowest[s]] == floor &&
          (space.second[s] == space.lowest[s] || space.base[space.second[s]] <= highest)) {
        continue;
      }
      if (s == 0 || !Borrow(space, s)) Look(space, s);
      const int32_t lowest = space.base[space.lowest[s]];
      if (lowest > floor) {
        *cost += losses_[s] * (lowest - floor);
        space.floor[s] = lowest;
        if (lowest > highest) {
          BlameSection(space, s);
          return false;
        }
      }
      if (space.base[space.second[s]] <= highest) continue;
      if (!StackOthers(space, s, &again_first, &again_last)) return false;
      space.second[s] = space.lowest[s];
    }
    first = again_first;
    last = again_last;
  }
  return true;
}

// Tries what the section before and this one found: mostly two of these still serve.
bool LifetimeSearch::Borrow(const Space& space, int section) {
  const int32_t floor = space.floor[section];
  const int32_t highest = height_ - space.to_come[section];
  int lowest = -1, second = -1;
  for (int i : {space.lowest[section - 1], space.second[section - 1], space.lowest[section],
                space.second[section]}) {
    if (i == lowest || i == second || first_[i] > section || last_[i] <= section) continue;
    const int32_t base = space.base[i];
    if (base == floor && lowest < 0) {
      lowest = i;
    } else if (base <= highest) {
      second = i;
    }
  }
  steps_ += 2;
  if (lowest < 0 || second < 0) return false;
  space.lowest[section] = lowest;
  space.second[section] = second;
  return true;
}

// Finds the lowest of those to come in a section and another that could be the lowest as well; the
// lowest two, unless less is enough.
void LifetimeSearch::Look(const Space& space, int section) {
  const int32_t floor = space.floor[section];
  const int32_t highest = height_ - space.to_come[section];
  int lowest = -1, second = -1;
  int32_t lowest_base = kPlaced, second_base = kPlaced;
  for (int i : to_come_[section]) {
    ++steps_;
    const int32_t base = space.base[i];
    if (base < lowest_base) {
      second = lowest;
      second_base = lowest_base;
      lowest = i;
      lowest_base = base;
    } else if (base < second_base) {
      second = i;
      second_base = base;
    } else {
      continue;
    }
    if (lowest_base == floor && second_base <= highest) break;
  }
  space.lowest[section] = lowest;
  space.second[section] = second < 0 ? lowest : second;
}

// Only `lowest` can be the lowest in the section: the others lie above it.
bool LifetimeSearch::StackOthers(const Space& space, int section, int* first, int* last) {
  const int lowest = space.lowest[section];
  const int32_t top = space.base[lowest] + units_[lowest];
  if (space.base[space.second[section]] >= top) return true;
  for (int i : to_come_[section]) {
    ++steps_;
    if (space.base[i] >= top || i == lowest) continue;
    space.base[i] = top;
    if (top > limits_[i]) {
      BlameItem(i);
      return false;
    }
    *first = std::min(*first, first_[i]);
    *last = std::max(*last, last_[i]);
  }
  return true;
}

void LifetimeSearch::BlameItem(int item) {
  ++item_blame_[item];
  for (int s = first_[item]; s < last_[item]; ++s) ++section_blame_[s];
}

void LifetimeSearch::BlameSection(const Space& space, int section) {
  ++section_blame_[section];
  for (int i : to_come_[section]) {
    if (space.base[i] != kPlaced) ++item_blame_[i];
  }
}

// What was in the way long ago matters less than what was just now.
void LifetimeSearch::Learn() {
  const auto learn = [](std::vector<int>& blame, std::vector<double>& weights) {
    const double most = std::max(1, *std::max_element(blame.begin(), blame.end()));
    for (size_t i = 0; i < blame.size(); ++i) {
      weights[i] += kLearning * (1 + kBlameWeight * blame[i] / most - weights[i]);
      blame[i] = 0;
    }
  };
  learn(item_blame_, item_weights_);
  learn(section_blame_, section_weights_);
}

}  // namespace ebbtide::internal
