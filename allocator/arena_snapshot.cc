// SPDX-License-Identifier: Apache-2.0
//
// The picture of an arena: each range with memory behind it is a segment, and slabs are shown as
// the objects in them.

#include "allocator/arena.h"

namespace ebbtide {

void Arena::AppendBlock(const Block& block, uintptr_t begin, uintptr_t end,
                        std::vector<BlockPicture>* blocks) const {
  BlockPicture picture;
  picture.address = begin;
  picture.size = Bytes(static_cast<int64_t>(end - begin));
  const uintptr_t word = block.free ? 0 : pages_->Get(block.begin);
  const SmallCache::Slab* slab = SmallCache::SlabOf(word);
  if (slab == nullptr) {
    if (!block.free) {
      picture.requested = Bytes(block.asked);
      picture.state = awaiting_.Contains(block.begin) ? BlockState::kActiveAwaitingFree
                                                      : BlockState::kActiveAllocated;
    }
    blocks->push_back(picture);
    return;
  }
  const size_t size = SmallCache::ObjectSize(slab);
  for (uintptr_t at = begin; at < end; at += size) {
    BlockPicture object;
    object.address = at;
    object.size = Bytes(static_cast<int64_t>(std::min(size, end - at)));  // the last may be a rest
    const bool waits = awaiting_.Contains(at);
    if (waits || SmallCache::IsLive(slab, at)) {
      object.requested = Bytes(static_cast<int64_t>(SmallCache::AskedSize(slab, at)));
      object.state = waits ? BlockState::kActiveAwaitingFree : BlockState::kActiveAllocated;
    }
    blocks->push_back(object);
  }
}

void Arena::AppendPictureLocked(std::vector<SegmentPicture>* segments) const {
  for (const Heap& heap : heaps_) {
    heap.VisitCommitted(
        [&](uintptr_t begin, uintptr_t end) {
          SegmentPicture& segment = segments->emplace_back();
          segment.address = begin;
          segment.size = Bytes(static_cast<int64_t>(end - begin));
          segment.stream = stream();
          segment.pool = {0, static_cast<int64_t>(pool())};
          segment.type = &heap == &heaps_[0] ? SegmentType::kSmall : SegmentType::kLarge;
          segment.expandable = partial_;
        },
        [&](const Block& block, uintptr_t begin, uintptr_t end) {
          AppendBlock(block, begin, end, &segments->back().blocks);
        });
  }
}

}  // namespace ebbtide
