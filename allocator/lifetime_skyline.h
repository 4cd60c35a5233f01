// SPDX-License-Identifier: Apache-2.0
//
// What a set of buffers that were placed from below leaves to the others: the lowest offset of each
// and the lowest of all of them in each section. The rules that keep it, and that tell when the
// rest cannot fit below the height any more:
//
// * What rests in a section rests no lower than the lowest of those to come can; what lies below
//   that is lost, and a section that loses more than it has to spare is a dead end.
// * When only one of those to come can be the lowest in a section, because with any other it would
//   overflow, then the others lie on top of that one.
//
// The state is a flat row of cells, so that a search copies it at once; the tables here are shared
// by all of its states. One thread at a time; borrows the problem. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_SKYLINE_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_SKYLINE_H_

#include <cstdint>
#include <vector>

#include "allocator/lifetime_problem.h"

namespace ebbtide::internal {

class LifetimeSkyline {
 public:
  // Heights and offsets, in units, lie below; it stands for the base of what is placed.
  static constexpr int32_t kPlaced = 1 << 29;

  // A view of one state's cells.
  struct Cells {
    int32_t* base;     // of each buffer: the lowest offset left to it, or kPlaced
    int32_t* floor;    // of each section: the lowest base of those to come, or kPlaced
    int32_t* to_come;  // of each section: their units
    int32_t* lowest;   // of each section: one to come whose base is the floor
    int32_t* second;   // of each section: another that may become the lowest, else `lowest`
  };
  struct Lift {
    int item;
    int32_t base;
  };
  // How often each buffer and section was in the way, and which section was last.
  struct Blame {
    std::vector<int> items, sections;
    int section = 0;
  };

  // O(buffers x sections of each) in time and memory. `problem` must outlive this.
  explicit LifetimeSkyline(const PackProblem& problem);

  int stride() const { return stride_; }  // cells of a state
  Cells View(int32_t* cells) const {
    int32_t* const floor = cells + count_;
    return {cells, floor, floor + sections_, floor + 2 * sections_, floor + 3 * sections_};
  }

  // The first section of the lowest place that is open, the earliest of those. Only what begins
  // there can rest on it: what begins before would make the place reach further.
  int LowestPlace(const Cells& cells);

  // These return false when the rest cannot fit any more, and leave the cells undefined then; else
  // they add the cost of what is lost.

  // Starts anew, with nothing placed and this height. `losses[s]` is the cost of a unit lost in s.
  bool Start(int32_t height, const std::vector<double>& losses, const Cells& cells);
  // Places a buffer at its base, which must be the floor of all of its sections.
  bool Place(const Cells& cells, int item, double* cost);
  // Lets nothing rest on the lowest place at `section`; appends what that lifts to `lifts`.
  bool LeaveOpen(const Cells& cells, int section, std::vector<Lift>* lifts, double* cost);
  // Repeats what LeaveOpen lifted.
  bool Raise(const Cells& cells, const Lift* begin, const Lift* end, double* cost);

  // What every state of the search has placed is looked at no more until the next Start.
  template <typename Predicate>
  void Forget(const Predicate& placed_everywhere) {
    for (std::vector<int>& members : to_come_) {
      steps_ += static_cast<int64_t>(members.size());
      std::erase_if(members, placed_everywhere);
    }
  }

  int begins(int section) const { return begins_[section]; }  // the first buffer from there on
  bool Twins(int a, int b) const {
    return first_[a] == first_[b] && last_[a] == last_[b] && units_[a] == units_[b] &&
           limits_[a] == limits_[b];
  }
  Blame& blame() { return blame_; }
  int64_t steps() const { return steps_; }

 private:
  bool Settle(const Cells& cells, int first, int last, double* cost);
  bool Borrow(const Cells& cells, int section);
  void Look(const Cells& cells, int section);
  bool StackOthers(const Cells& cells, int section, int* first, int* last);
  void BlameItem(int item);
  void BlameSection(const Cells& cells, int section);

  const PackProblem& problem_;
  const int count_, sections_, stride_;
  std::vector<int32_t> units_, first_, last_;
  std::vector<int> near_begin_, near_end_;  // of each buffer: indices of all it conflicts with
  std::vector<int> begins_;                 // of each section
  std::vector<std::vector<int>> members_;   // of each section
  std::vector<std::vector<int>> to_come_;   // of each section: those not yet placed everywhere
  std::vector<int32_t> limits_;             // the highest offset of each buffer
  std::vector<double> losses_;
  int32_t height_ = 0;
  Blame blame_;
  int64_t steps_ = 0;
};

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_SKYLINE_H_
