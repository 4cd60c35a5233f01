// SPDX-License-Identifier: Apache-2.0
//
// Which blocks have to leave so that `bytes` contiguous bytes become free, at the least total
// score? The answer is a run of neighbours: free blocks cost nothing, blocks that must stay end it,
// and it is found by sliding a window over the blocks in the order of their addresses, as in Coop
// (Zhang, Ma, Liu and Yuan, "Coop: Memory is not a Commodity", NeurIPS 2023). Evicting the blocks
// of least score one by one, wherever they lie, frees as much memory and often no room.
//
// Exact, because scores are not negative: of all windows that end at a block, the shortest one that
// is large enough costs least, and it moves forward only when its end does. Scores are added up but
// never subtracted, so that a block of enormous score leaves no rounding error behind when the
// window has passed it.
//
// The blocks stay where they are: any forward iterators, and a callable that describes what one of
// them points to. Thread safety: pure functions; the caller keeps the blocks still. Nothing is
// owned. To replace: the tests compare with all windows there are.

#ifndef EBBTIDE_ALLOCATOR_CHEAPEST_WINDOW_H_
#define EBBTIDE_ALLOCATOR_CHEAPEST_WINDOW_H_

#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace ebbtide {

struct WindowBlock {
  // The score of a block that must stay.
  static constexpr double kImmovable = std::numeric_limits<double>::infinity();

  uintptr_t begin = 0;  // its address
  Bytes size;           // positive
  double score = 0;     // what its eviction costs, in any unit: 0 when it is free, or kImmovable
};

template <typename Iterator>
struct EvictionWindow {
  Iterator first;  // the blocks [first, last), some of which may be free
  Iterator last;
  uintptr_t begin = 0;  // where the contiguous bytes begin
  Bytes size;           // how many they are: at least what was asked for
  double score = 0;     // the sum over the blocks
};

namespace window_internal {

// The sum of a queue of numbers by additions alone: the queue as two stacks. Each number is added
// twice at most, and what Sum returns is off by rounding of its own terms only.
class QueueSum {
 public:
  void Push(double number) {
    newer_.push_back(number);
    newer_sum_ += number;
  }
  // REQUIRES: something was pushed that has not been popped.
  void Pop() {
    if (older_sums_.empty()) {
      double sum = 0;
      for (; !newer_.empty(); newer_.pop_back()) older_sums_.push_back(sum += newer_.back());
      newer_sum_ = 0;
    }
    older_sums_.pop_back();
  }
  void Clear() {
    older_sums_.clear();
    newer_.clear();
    newer_sum_ = 0;
  }
  double Sum() const { return (older_sums_.empty() ? 0 : older_sums_.back()) + newer_sum_; }

 private:
  std::vector<double> older_sums_;  // of the older half: of its newest, of its two newest, ...
  std::vector<double> newer_;
  double newer_sum_ = 0;
};

}  // namespace window_internal

// The window of least score in [first, last), blocks in ascending order of their addresses, without
// overlap; or nothing where no run of movable neighbours has `bytes` > 0. Of windows with equal
// score it is the one that ends first, and of those the one that begins last, so that no block at
// its borders is in it for nothing. Stops at the first window whose score is not above `floor`: one
// that the caller knows to be the best there can be.
//
// describe(*iterator) returns a WindowBlock, the same whenever it is asked, twice a block at most.
// O(n) calls and additions, and memory for the largest window. `Iterator` is a forward iterator.
template <typename Iterator, typename Describe>
std::optional<EvictionWindow<Iterator>> CheapestWindow(Iterator first, Iterator last, Bytes bytes,
                                                       Describe&& describe, double floor = 0) {
  EBB_CHECK(bytes > Bytes(0));
  std::optional<EvictionWindow<Iterator>> best;
  window_internal::QueueSum score;
  Bytes size;         // of the window [left, right], which is empty when this is 0
  uintptr_t end = 0;  // where it ends
  Iterator left = first;
  WindowBlock left_block;
  for (Iterator right = first; right != last; ++right) {
    const WindowBlock block = describe(*right);
    EBB_DCHECK(block.size > Bytes(0) && block.score >= 0 && block.begin >= end);
    if (block.score == WindowBlock::kImmovable || block.begin != end) {
      score.Clear();
      size = Bytes(0);
    }
    end = block.begin + static_cast<uintptr_t>(block.size.count());
    if (block.score == WindowBlock::kImmovable) continue;
    if (size == Bytes(0)) {
      left = right;
      left_block = block;
    }
    score.Push(block.score);
    size += block.size;
    for (; size - left_block.size >= bytes; left_block = describe(*++left)) {
      score.Pop();
      size -= left_block.size;
    }
    if (size < bytes || (best.has_value() && score.Sum() >= best->score)) continue;
    best = {left, std::next(right), left_block.begin, size, score.Sum()};
    if (best->score <= floor) break;
  }
  return best;
}

// The same for a caller that knows where to look first: `hint` is a block of the least score of all
// those that are neither free nor immovable, such as the victim that a policy names, and no run of
// free blocks has `bytes`. Then every window holds a block that costs as much as `hint` or more, so
// that one that costs no more than `hint` is the best: typically there is one around `hint`, when
// it is large or has free neighbours. This costs O(blocks in a window around `hint`) calls; else
// all blocks are gone through as above, once. The score is the same as above; of windows with equal
// score, those near `hint` come first. `Iterator` is a bidirectional iterator.
template <typename Iterator, typename Describe>
std::optional<EvictionWindow<Iterator>> CheapestWindowNear(Iterator hint, Iterator first,
                                                           Iterator last, Bytes bytes,
                                                           Describe&& describe) {
  EBB_CHECK(bytes > Bytes(0));
  const double floor = describe(*hint).score;
  // No shortest window around `hint` has `bytes` on one side of it already.
  Bytes before, after;
  Iterator from = hint;
  while (from != first && before < bytes) before += describe(*--from).size;
  Iterator to = std::next(hint);
  while (to != last && after < bytes) after += describe(*to++).size;
  const auto near = CheapestWindow(from, to, bytes, describe, floor);
  if (near.has_value() && near->score <= floor) return near;
  return CheapestWindow(first, last, bytes, describe, floor);
}

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CHEAPEST_WINDOW_H_
