// SPDX-License-Identifier: Apache-2.0
//
// Looks for a packing of at most a given height: a beam search over skylines. A step of a state
// puts a buffer onto the lowest place that is still open, the earliest of those, or leaves that
// place open to what rests higher. Of all that the beam's states lead to, the few with the least
// lost space are kept (LifetimeSkyline says what is lost and what cannot fit, LifetimeTaste what
// that costs). A try takes a fraction of a millisecond, and there are many.
//
// One thread at a time. Borrows the problem, owns its own state. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_

#include <cstdint>
#include <vector>

#include "allocator/lifetime_problem.h"
#include "allocator/lifetime_skyline.h"
#include "allocator/lifetime_taste.h"

namespace ebbtide::internal {

class LifetimeSearch {
 public:
  static constexpr int64_t kHeightMax = LifetimeSkyline::kPlaced - 1;  // in units

  // O(buffers x sections of each) in time and memory. `problem` must outlive this.
  explicit LifetimeSearch(const PackProblem& problem);

  // Whether one try found a packing of at most `height` units; false proves nothing, and is the
  // answer once steps() has reached `max_steps`. REQUIRES: max_live <= height <= kHeightMax.
  bool Try(int64_t height, int64_t max_steps);

  const std::vector<int64_t>& offsets() const { return offsets_; }  // after Try returned true
  int64_t steps() const { return skyline_.steps() + steps_; }       // of all tries

 private:
  struct State {
    double cost;
    uint64_t placed;  // a hash of the set
    int link;         // the last placement, in links_
  };
  struct Link {
    int parent;
    int item;
    int32_t offset;
  };
  struct Child {
    double cost;
    uint64_t placed;
    int parent;  // in states_
    int item;
    int lifts_begin, lifts_end;  // what is lifted before, in lifts_
  };

  LifetimeSkyline::Cells View(std::vector<int32_t>& cells, size_t index) const;
  bool Advance();
  void Expand(int index);
  bool Adopt(const Child& child, State* next);
  void Forget();

  const int count_;
  LifetimeSkyline skyline_;
  LifetimeTaste taste_;
  std::vector<uint64_t> names_;  // of each buffer, for hashes of sets
  std::vector<State> states_, next_states_;
  std::vector<int32_t> cells_, next_cells_, scratch_;
  std::vector<Child> children_;
  std::vector<LifetimeSkyline::Lift> lifts_;
  std::vector<Link> links_;
  std::vector<int64_t> offsets_;
  int64_t steps_ = 0;
};

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
