// SPDX-License-Identifier: Apache-2.0
//
// The walk over all of a heap that tests use to show that the cheap bookkeeping of heap.cc agrees
// with the granule maps. Apart from heap.cc, because nothing else calls it.

#include "allocator/heap.h"
#include "base/check.h"

namespace ebbtide {

int64_t Heap::CountCommitted() const {
  size_t granules = 0;
  for (const auto& segment : segments_) {
    granules += segment->map.Count(0, segment->size >> shift_);
  }
  return static_cast<int64_t>(granules) << shift_;
}

void Heap::CheckBlock(const Block* block) const {
  const GranuleMap& map = block->segment->map;
  const uintptr_t base = GranuleDown(block->segment->begin);
  EBB_CHECK(block->begin < block->end && block->begin % kAlignment == 0);
  if (!block->free) {
    EBB_CHECK(CountUncommitted(block) == 0) << "a live block lacks memory";
    EBB_CHECK(block->size_link.key == 0 && block->run_link.key == 0);
    return;
  }
  EBB_CHECK(block->next == nullptr || !block->next->free) << "free neighbours were not merged";
  EBB_CHECK(block->releasable == CountReleasable(block))
      << block->releasable << " granules counted, " << CountReleasable(block) << " releasable";
  EBB_CHECK(block->size_link.key == block->size());
  EBB_CHECK(block->run_link.key == block->run_size());
  if (partial_) EBB_CHECK(block->releasable_link.key == block->releasable << shift_);
  if (block->run_size() == 0) {
    EBB_CHECK(block->releasable == 0) << "committed memory that no run names";
    return;
  }
  EBB_CHECK(block->begin <= block->run_begin && block->run_end <= block->end);
  const uintptr_t first = GranuleDown(block->run_begin) - base;
  const uintptr_t last = GranuleUp(block->run_end) - base;
  EBB_CHECK(map.Count(first, last) == last - first) << "a run that is not all committed";
}

void Heap::CheckInvariants() const {
  size_t reserved = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = *segments_[i];
    EBB_CHECK(segment.place == i);
    reserved += segment.size;
    uintptr_t at = segment.begin;
    const Block* previous = nullptr;
    for (const Block* block = segment.first; block != nullptr; block = block->next) {
      EBB_CHECK(block->begin == at && block->prev == previous && block->segment == &segment);
      CheckBlock(block);
      at = block->end;
      previous = block;
    }
    EBB_CHECK(at == segment.begin + segment.size) << "blocks do not fill their segment";
  }
  EBB_CHECK(reserved == reserved_);
}

}  // namespace ebbtide
