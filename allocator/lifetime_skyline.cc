// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_skyline.h"

#include <algorithm>
#include <initializer_list>

namespace ebbtide::internal {

LifetimeSkyline::LifetimeSkyline(const PackProblem& problem)
    : problem_(problem),
      count_(problem.count()),
      sections_(problem.sections()),
      stride_(count_ + 4 * sections_),
      begins_(sections_ + 1, count_),
      members_(sections_),
      limits_(count_) {
  blame_.items.assign(count_, 0);
  blame_.sections.assign(sections_, 0);
  for (int i = 0; i < count_; ++i) {
    const PackItem& item = problem.items[i];
    units_.push_back(static_cast<int32_t>(item.units));
    first_.push_back(item.first);
    last_.push_back(item.last);
    for (int s = item.first; s < item.last; ++s) members_[s].push_back(i);
    begins_[item.first] = std::min(begins_[item.first], i);
  }
  for (int s = sections_ - 1; s >= 0; --s) {
    begins_[s] = std::min(begins_[s], begins_[s + 1]);
  }
  for (int i = 0; i < count_; ++i) {
    // Buffers are sorted by begin, so the first member of a section began first.
    near_begin_.push_back(members_[first_[i]].front());
    near_end_.push_back(begins_[last_[i]]);
  }
}

bool LifetimeSkyline::Start(int32_t height, const std::vector<double>& losses, const Cells& cells) {
  height_ = height;
  losses_ = losses;
  to_come_ = members_;
  for (int i = 0; i < count_; ++i) {
    const auto fixed = static_cast<int32_t>(problem_.items[i].fixed);
    limits_[i] = fixed < 0 ? height - units_[i] : fixed;
    cells.base[i] = std::max(0, fixed);
  }
  for (int s = 0; s < sections_; ++s) {
    cells.floor[s] = 0;
    cells.to_come[s] = static_cast<int32_t>(problem_.live[s]);
    cells.lowest[s] = members_[s].front();
    cells.second[s] = members_[s].back();
  }
  steps_ += count_ + sections_;
  double lost = 0;  // alike for all states
  return Settle(cells, 0, sections_, &lost);
}

int LifetimeSkyline::LowestPlace(const Cells& cells) {
  int32_t level = kPlaced;
  for (int s = 0; s < sections_; ++s) level = std::min(level, cells.floor[s]);
  steps_ += sections_ / 4;
  return static_cast<int>(std::find(cells.floor, cells.floor + sections_, level) - cells.floor);
}

bool LifetimeSkyline::Place(const Cells& cells, int item, double* cost) {
  const int32_t top = cells.base[item] + units_[item];
  const int first = first_[item], last = last_[item];
  cells.base[item] = kPlaced;
  for (int s = first; s < last; ++s) {
    cells.to_come[s] -= units_[item];
    cells.floor[s] = cells.to_come[s] == 0 ? kPlaced : cells.floor[s] + units_[item];
  }
  const int begin = near_begin_[item], end = near_end_[item];
  // Without branches, so that the compiler can make vectors of it.
  int32_t too_high = 0, raised_first = first, raised_last = last;
  for (int j = begin; j < end; ++j) {
    const int32_t old = cells.base[j];
    const int32_t raised = -static_cast<int32_t>((last_[j] > first) & (old < top));
    cells.base[j] = old ^ ((old ^ top) & raised);
    too_high |= raised & -static_cast<int32_t>(top > limits_[j]);
    raised_first = std::min(raised_first, first_[j] | (~raised & kPlaced));
    raised_last = std::max(raised_last, last_[j] & raised);
  }
  steps_ += (end - begin) / 4 + (last - first);
  if (too_high != 0) {
    for (int j = begin; j < end; ++j) {
      if (cells.base[j] == top && top > limits_[j]) BlameItem(j);
    }
    return false;
  }
  return Settle(cells, raised_first, raised_last, cost);
}

// What could have rested there rests on something that begins later, or on what is lifted with it.
bool LifetimeSkyline::LeaveOpen(const Cells& cells, int section, std::vector<Lift>* lifts,
                                double* cost) {
  const int32_t level = cells.floor[section];
  const size_t begin = lifts->size();
  int32_t floor = kPlaced;
  for (int i = begins_[section]; i < begins_[section + 1]; ++i) {
    if (cells.base[i] != level) continue;
    int32_t base = kPlaced;
    for (int j = begins_[section + 1]; j < begins_[last_[i]]; ++j) {
      base = std::min(base, cells.base[j] + units_[j]);
    }
    steps_ += (begins_[last_[i]] - begins_[section + 1]) / 4;
    lifts->push_back({i, base});
    floor = std::min(floor, base);
  }
  for (int i : to_come_[section]) {
    if (cells.base[i] != level) floor = std::min(floor, cells.base[i]);
  }
  if (floor > height_ - cells.to_come[section]) {
    BlameSection(cells, section);
    return false;
  }
  for (size_t k = begin; k < lifts->size(); ++k) {
    Lift& lift = (*lifts)[k];
    if (lift.base == kPlaced) lift.base = floor;
    if (lift.base <= limits_[lift.item]) continue;
    BlameItem(lift.item);
    return false;
  }
  return Raise(cells, lifts->data() + begin, lifts->data() + lifts->size(), cost);
}

bool LifetimeSkyline::Raise(const Cells& cells, const Lift* begin, const Lift* end, double* cost) {
  int first = sections_, last = 0;
  for (const Lift* lift = begin; lift != end; ++lift) {
    cells.base[lift->item] = std::max(cells.base[lift->item], lift->base);
    first = std::min(first, first_[lift->item]);
    last = std::max(last, last_[lift->item]);
  }
  return Settle(cells, first, last, cost);
}

// Brings the floors of sections [first, last) up to the bases, and those that this raises.
bool LifetimeSkyline::Settle(const Cells& cells, int first, int last, double* cost) {
  while (first < last) {
    int again_first = sections_, again_last = 0;
    steps_ += last - first;
    for (int s = first; s < last; ++s) {
      const int32_t floor = cells.floor[s];
      if (floor == kPlaced) continue;
      const int32_t highest = height_ - cells.to_come[s];  // where the lowest may lie
      if (cells.base[cells.lowest[s]] == floor &&
          (cells.second[s] == cells.lowest[s] || cells.base[cells.second[s]] <= highest)) {
        continue;
      }
      if (!Borrow(cells, s)) Look(cells, s);
      const int32_t lowest = cells.base[cells.lowest[s]];
      if (lowest > floor) {
        *cost += losses_[s] * (lowest - floor);
        cells.floor[s] = lowest;
        if (lowest > highest) {
          BlameSection(cells, s);
          return false;
        }
      }
      if (cells.base[cells.second[s]] <= highest) continue;
      if (!StackOthers(cells, s, &again_first, &again_last)) return false;
    }
    first = again_first;
    last = again_last;
  }
  return true;
}

// Tries what this section and the one before it found last: mostly two of these still serve.
bool LifetimeSkyline::Borrow(const Cells& cells, int section) {
  if (section == 0) return false;
  const int32_t highest = height_ - cells.to_come[section];
  int lowest = -1, second = -1;
  for (int i : {cells.lowest[section - 1], cells.second[section - 1], cells.lowest[section],
                cells.second[section]}) {
    if (i == lowest || i == second || first_[i] > section || last_[i] <= section) continue;
    if (cells.base[i] == cells.floor[section] && lowest < 0) {
      lowest = i;
    } else if (cells.base[i] <= highest) {
      second = i;
    }
  }
  steps_ += 2;
  if (lowest < 0 || second < 0) return false;
  cells.lowest[section] = lowest;
  cells.second[section] = second;
  return true;
}

// Finds the lowest two of those to come in a section, or less if that is enough: one on the floor
// and another that may become the lowest.
void LifetimeSkyline::Look(const Cells& cells, int section) {
  const int32_t floor = cells.floor[section];
  const int32_t highest = height_ - cells.to_come[section];
  int lowest = -1, second = -1;
  int32_t lowest_base = kPlaced, second_base = kPlaced;
  for (int i : to_come_[section]) {
    ++steps_;
    const int32_t base = cells.base[i];
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
  cells.lowest[section] = lowest;
  cells.second[section] = second < 0 ? lowest : second;
}

// Only `lowest` can be the lowest in the section: the others lie above it.
bool LifetimeSkyline::StackOthers(const Cells& cells, int section, int* first, int* last) {
  const int lowest = cells.lowest[section];
  const int32_t top = cells.base[lowest] + units_[lowest];
  const bool stacked = cells.base[cells.second[section]] >= top;
  cells.second[section] = lowest;
  if (stacked) return true;
  for (int i : to_come_[section]) {
    ++steps_;
    if (cells.base[i] >= top || i == lowest) continue;
    cells.base[i] = top;
    if (top > limits_[i]) {
      BlameItem(i);
      return false;
    }
    *first = std::min(*first, first_[i]);
    *last = std::max(*last, last_[i]);
  }
  return true;
}

void LifetimeSkyline::BlameItem(int item) {
  ++blame_.items[item];
  for (int s = first_[item]; s < last_[item]; ++s) ++blame_.sections[s];
  blame_.section = (first_[item] + last_[item]) / 2;
}

void LifetimeSkyline::BlameSection(const Cells& cells, int section) {
  ++blame_.sections[section];
  for (int i : to_come_[section]) {
    if (cells.base[i] != kPlaced) ++blame_.items[i];
  }
  blame_.section = section;
}

}  // namespace ebbtide::internal
