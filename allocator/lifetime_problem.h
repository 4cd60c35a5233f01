// SPDX-License-Identifier: Apache-2.0
//
// A packing problem in the form that the packer's stages share: sizes in units of the alignment,
// and time reduced to sections, the instants at which the set of live buffers is not part of that
// of a neighbouring instant. Two buffers conflict exactly if they share a section.
//
// Immutable once made, so safe on any thread; owns all it holds. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_PROBLEM_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "allocator/lifetime_packer.h"

namespace ebbtide::internal {

struct PackItem {
  int first = 0;           // section
  int last = 0;            // one past the last section
  int64_t units = 0;       // size
  int64_t begin = 0;       // of the lifetime
  int64_t length = 0;      // of the lifetime, for priorities
  int64_t fixed = -1;      // its offset, if that is given
  int64_t contention = 0;  // the most units live in one of its sections
};

struct PackProblem {
  // Those that can conflict: bytes > 0 and begin < end. By first section, then last, then size.
  std::vector<PackItem> items;
  std::vector<int> source;    // the index of each in the lifetimes given
  std::vector<int64_t> live;  // units live in each section
  int64_t max_live = 0;
  int64_t fixed_top = 0;  // the highest end of those whose offset is given

  PackProblem(absl::Span<const Lifetime> lifetimes, int64_t alignment);

  int count() const { return static_cast<int>(items.size()); }
  int sections() const { return static_cast<int>(live.size()); }
  bool Conflict(int a, int b) const {
    return items[a].first < items[b].last && items[b].first < items[a].last;
  }
  // The items by stretches of time that no item joins: what lies in one limits no other.
  std::vector<std::vector<int>> Parts() const;
  // The highest end of `offsets`, in units.
  int64_t Height(const std::vector<int64_t>& offsets) const;
};

// Offsets from a walk through the sections, around what is fixed: a buffer goes into the smallest
// gap that takes it when it begins, and leaves when it ends. O(n log n) plus O(live) a buffer.
std::vector<int64_t> PackBySweep(const PackProblem& problem);

// Lets buffers fall in the order of `offsets`, each onto those that lie below it in its sections:
// never higher than they were, if no two overlapped. O(sections of each).
std::vector<int64_t> PressDown(const PackProblem& problem, const std::vector<int64_t>& offsets);

// Places buffers in the order given, each into the smallest gap among those that conflict with it,
// else on top of them; what is fixed comes first. O(n^2).
std::vector<int64_t> PackInOrder(const PackProblem& problem, const std::vector<int>& order);

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_PROBLEM_H_
