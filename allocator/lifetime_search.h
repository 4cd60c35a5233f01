// SPDX-License-Identifier: Apache-2.0
//
// Looks for a packing of at most a given height. Buffers are placed in order of offset, each
// resting on those below it, so that packings with room to press something down are never visited.
// A branch ends when an instant cannot hold what is still to come above its lowest free offset.
//
// One thread at a time. Borrows the problem, owns its own state. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/lifetime_problem.h"

namespace ebbtide::internal {

class LifetimeSearch {
 public:
  // O(pairs in conflict) in time and memory. `problem` must outlive this.
  explicit LifetimeSearch(const PackProblem& problem);

  // Whether a packing of at most `height` units was found, in at most about `max_steps` steps or
  // `max_nodes` placements; ties are tried in `order`. False proves nothing.
  bool Run(int64_t height, const std::vector<int>& order, int64_t max_nodes, int64_t max_steps);

  const std::vector<int64_t>& offsets() const { return offsets_; }  // after Run returned true
  int64_t steps() const { return steps_; }                          // of all runs
  // How much each buffer was in the way of recent runs.
  const std::vector<double>& weights() const { return weights_; }

 private:
  void Reset(const std::vector<int>& order);
  bool Exhausted() const { return nodes_ > max_nodes_ || steps_ > max_steps_; }
  bool Solve(const std::vector<int>& ranks, int64_t floor, int last_rank);
  bool SolveApart(const std::vector<int>& ranks, int64_t floor, int last_rank);
  void Candidates(const std::vector<int>& ranks, int64_t floor, int last_rank);
  bool Place(int item, int64_t floor, bool* apart);
  bool RaiseNeighbours(int item, int64_t top);
  bool RaiseSection(int section);
  bool FloorFits(int item, int64_t floor);
  void TakeBack(int item);
  void Undo(int item, size_t mark);
  void Set(int64_t& field, int64_t value) {
    trail_.emplace_back(&field, field);
    field = value;
  }
  void Touch(int section) {
    if (touched_at_[section] == touch_) return;
    touched_at_[section] = touch_;
    touched_.push_back(section);
  }
  void Blame(int section);

  const PackProblem& problem_;
  std::vector<std::vector<int>> neighbours_;
  std::vector<std::vector<int>> members_;  // of each section
  int64_t height_ = 0;
  int64_t nodes_ = 0, max_nodes_ = 0;
  int64_t steps_ = 0, max_steps_ = 0;
  std::vector<int> order_;     // buffer of each rank
  std::vector<char> placed_;   // of each buffer
  std::vector<int64_t> base_;  // the lowest offset that those placed leave to each buffer
  std::vector<int64_t> offsets_;
  std::vector<int64_t> lowest_;   // the lowest base of those to come, of each section
  std::vector<int64_t> to_come_;  // their units, of each section
  std::vector<int> crossing_;     // how many to come span sections i - 1 and i
  std::vector<double> weights_;
  std::vector<std::pair<int64_t*, int64_t>> trail_;  // what to undo
  std::vector<std::pair<int64_t, int>> candidates_;  // a stack of (offset, rank)
  std::vector<int> touched_, touched_at_;
  int touch_ = 0;
};

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
