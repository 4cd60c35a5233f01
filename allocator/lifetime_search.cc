// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_search.h"

#include <algorithm>

#include "base/check.h"

namespace ebbtide::internal {
namespace {

// Found by trial on minimalloc's problems. Many narrow tries beat fewer wide ones.
constexpr size_t kWidth = 3;        // states kept
constexpr int kChildren = 4;        // placements after which a state leaves no more places open
constexpr int kChildrenMax = 8;     // placements from a state
constexpr int kPlacesMax = 3;       // places that a state looks at
constexpr int kForgetEvery = 16;    // placements
constexpr int64_t kChildCost = 40;  // steps, for what is not counted elsewhere

}  // namespace

LifetimeSearch::LifetimeSearch(const PackProblem& problem)
    : count_(problem.count()),
      skyline_(problem),
      taste_(problem),
      cells_(kWidth * skyline_.stride()),
      next_cells_(cells_.size()),
      scratch_(skyline_.stride()),
      offsets_(count_) {
  Draws names;
  for (int i = 0; i < count_; ++i) names_.push_back(names.NextBits());
}

LifetimeSkyline::Cells LifetimeSearch::View(std::vector<int32_t>& cells, size_t index) const {
  return skyline_.View(cells.data() + index * skyline_.stride());
}

bool LifetimeSearch::Try(int64_t height, int64_t max_steps) {
  EBB_CHECK(height <= kHeightMax) << height;
  taste_.Choose(height);
  if (!skyline_.Start(static_cast<int32_t>(height), taste_.losses(), View(cells_, 0))) return false;
  states_.assign(1, State{0, 0, -1});
  links_.clear();
  for (int placed = 0; placed < count_; ++placed) {
    if (steps() >= max_steps) return false;
    if (placed % kForgetEvery == kForgetEvery - 1) Forget();
    if (Advance()) continue;
    taste_.Learn(placed, &skyline_.blame());
    return false;
  }
  for (int link = states_.front().link; link >= 0; link = links_[link].parent) {
    offsets_[links_[link].item] = links_[link].offset;
  }
  return true;
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
    // Another order of the same buffers lost less.
    if (std::any_of(next_states_.begin(), next_states_.end(),
                    [&](const State& state) { return state.placed == child.placed; })) {
      continue;
    }
    State next;
    if (Adopt(child, &next)) next_states_.push_back(next);
  }
  states_.swap(next_states_);
  cells_.swap(next_cells_);
  return !states_.empty();
}

// Lists what may come next: the buffers that can rest on the lowest place; and, with that left
// open, those that can rest on the then lowest.
void LifetimeSearch::Expand(int index) {
  LifetimeSkyline::Cells cells = View(cells_, index);
  const State& state = states_[index];
  const int lifts_begin = static_cast<int>(lifts_.size());
  double cost = state.cost;
  int made = 0;
  for (int places = 1;; ++places) {
    const int section = skyline_.LowestPlace(cells);
    const int32_t level = cells.floor[section];
    int last = -1;
    for (int i = skyline_.begins(section); i < skyline_.begins(section + 1); ++i) {
      if (cells.base[i] != level || made == kChildrenMax) continue;
      const bool twin = last >= 0 && skyline_.Twins(last, i);
      last = i;
      if (twin) continue;
      children_.push_back({cost - taste_.priorities()[i], state.placed ^ names_[i], index, i,
                           lifts_begin, static_cast<int>(lifts_.size())});
      ++made;
    }
    if (made >= kChildren || places == kPlacesMax) return;
    if (places == 1) {
      std::copy_n(cells.base, skyline_.stride(), scratch_.data());
      cells = View(scratch_, 0);
    }
    if (!skyline_.LeaveOpen(cells, section, &lifts_, &cost)) return;
  }
}

bool LifetimeSearch::Adopt(const Child& child, State* next) {
  const State& parent = states_[child.parent];
  const LifetimeSkyline::Cells cells = View(next_cells_, next_states_.size());
  std::copy_n(View(cells_, child.parent).base, skyline_.stride(), cells.base);
  steps_ += kChildCost + skyline_.stride() / 16;
  double cost = parent.cost - taste_.priorities()[child.item];
  if (!skyline_.Raise(cells, lifts_.data() + child.lifts_begin, lifts_.data() + child.lifts_end,
                      &cost)) {
    return false;
  }
  const int32_t offset = cells.base[child.item];
  if (!skyline_.Place(cells, child.item, &cost)) return false;
  *next = {cost, child.placed, static_cast<int>(links_.size())};
  links_.push_back({parent.link, child.item, offset});
  return true;
}

void LifetimeSearch::Forget() {
  skyline_.Forget([this](int item) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (View(cells_, i).base[item] != LifetimeSkyline::kPlaced) return false;
    }
    return true;
  });
}

}  // namespace ebbtide::internal
