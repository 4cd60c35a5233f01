// SPDX-License-Identifier: Apache-2.0
//
// Looks for a packing of at most a given height: a beam search over skylines. A state is a set of
// buffers placed from below; its next step puts a buffer onto the lowest place that is still open,
// the earliest of those, or leaves that place open to what rests higher. Of all the states that the
// beam's states lead to, the few with the least lost space are kept, and space counts as lost the
// more, the less of it its section of time has to spare. A state dies when a section cannot hold
// what is still to come. One try is a fraction of a millisecond; what was in the way of earlier
// tries weighs more in the later ones.
//
// Two rules prune. What rests in a section rests no lower than the lowest of those to come can. And
// when only one of those to come can be the lowest, because with any other the section would
// overflow, then the others lie on top of it.
//
// One thread at a time. Borrows the problem, owns its own state. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_

#include <cstdint>
#include <vector>

#include "allocator/lifetime_problem.h"

namespace ebbtide::internal {

// Numbers in [0, 1) that are the same everywhere (splitmix64).
class Draws {
 public:
  uint64_t NextBits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Next() { return static_cast<double>(NextBits() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 1;
};

class LifetimeSearch {
 public:
  // Heights, in units, must stay below this: offsets are kept in 32 bits.
  static constexpr int64_t kHeightMax = int64_t{1} << 29;

  // O(buffers x sections each). `problem` must outlive this.
  explicit LifetimeSearch(const PackProblem& problem);

  // Whether one try, drawn from `draws`, found a packing of at most `height` units.
  // REQUIRES: max_live <= height < kHeightMax. False proves nothing.
  bool Try(int64_t height, Draws& draws);

  const std::vector<int64_t>& offsets() const { return offsets_; }  // after Try returned true
  int64_t steps() const { return steps_; }                          // of all tries

 private:
  // What a state says of each buffer and of each section, side by side so that it is copied at once.
  struct Space {
    int32_t* base;     // of each buffer: the lowest offset left to it, or kPlaced
    int32_t* floor;    // of each section: the lowest base of those to come, or kPlaced
    int32_t* to_come;  // of each section: their units
    int32_t* lowest;   // of each section: one to come whose base is the floor
    int32_t* second;   // of each section: another that could be the lowest, else `lowest`
  };
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
  struct Lift {
    int item;
    int32_t base;
  };
  struct Child {
    double cost;
    uint64_t placed;
    int parent;  // in states_
    int item;
    int lifts_begin, lifts_end;  // what is lifted before, in lifts_
  };

  void Weigh(Draws& draws);
  Space At(std::vector<int32_t>& cells, int index) const;
  void Start();
  void Expand(int index);
  int LowestValley(const Space& space);
  int FirstValley(const Space& space);
  bool rule_;
  bool LeaveOpen(const Space& space, int section, int32_t level, double* cost);
  bool Advance();
  bool Adopt(const Child& child, State* next);
  bool Place(const Space& space, int item, double* cost);
  bool Settle(const Space& space, int first, int last, double* cost);
  void Forget();
  bool Borrow(const Space& space, int section);
  void Look(const Space& space, int section);
  bool StackOthers(const Space& space, int section, int* first, int* last);
  void BlameItem(int item);
  void BlameSection(const Space& space, int section);
  void Learn();

  const PackProblem& problem_;
  const int count_, sections_;
  int stride_;  // of a state's cells
  std::vector<int32_t> units_, first_, last_;
  // Of each buffer: the range of indices, and of sections, that hold all it conflicts with.
  std::vector<int> near_begin_, near_end_, reach_begin_, reach_end_;
  std::vector<int> begins_;                // of each section: the first buffer that begins there
  std::vector<std::vector<int>> members_;  // of each section
  std::vector<std::vector<int>> to_come_;
  int depth_ = 0;
  std::vector<uint64_t> names_;            // of each buffer, for hashes of sets

  int32_t height_ = 0;
  std::vector<int32_t> limits_;     // the highest offset of each buffer
  std::vector<double> priorities_;  // what placing a buffer takes off the cost
  std::vector<double> losses_;      // the cost of a unit lost in each section
  std::vector<State> states_, next_states_;
  std::vector<int32_t> cells_, next_cells_, scratch_;
  std::vector<Link> links_;
  std::vector<Lift> lifts_;
  std::vector<Child> children_;
  std::vector<int64_t> offsets_;
  int64_t steps_ = 0;

  // How often each was in the way: in this try, and of late.
  std::vector<int> item_blame_, section_blame_;
  std::vector<double> item_weights_, section_weights_;
};

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_SEARCH_H_
