// SPDX-License-Identifier: Apache-2.0

#include "allocator/snapshot.h"

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

absl::Status Wrong(const SegmentPicture& segment, const char* what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("snapshot: segment %#x: %s", segment.address, what));
}

absl::Status ValidateSegment(const SegmentPicture& segment) {
  if (segment.device < 0) return Wrong(segment, "its device is negative");
  uint64_t address = segment.address;
  for (const BlockPicture& block : segment.blocks) {
    if (block.address != address) return Wrong(segment, "a block does not begin where one ended");
    if (block.size <= Bytes(0)) return Wrong(segment, "a block has no size");
    if (block.requested < Bytes(0) || block.requested > block.size) {
      return Wrong(segment, "a block is smaller than what was asked for");
    }
    address += static_cast<uint64_t>(block.size.count());
  }
  if (address - segment.address != static_cast<uint64_t>(segment.size.count())) {
    return Wrong(segment, "its blocks do not fill it");
  }
  return absl::OkStatus();
}

}  // namespace

const char* Word(BlockState state) {
  static constexpr const char* kWords[] = {"active_allocated", "active_pending_free", "inactive"};
  return kWords[static_cast<int>(state)];
}

const char* Word(SegmentType type) { return type == SegmentType::kSmall ? "small" : "large"; }

const char* Word(HistoryAction action) {
  static constexpr const char* kWords[kHistoryActions] = {
      "alloc",         "free_requested", "free_completed",
      "segment_alloc", "segment_free",   "segment_map",
      "segment_unmap", "snapshot",       "oom"};
  return kWords[static_cast<int>(action)];
}

absl::Status ValidateSnapshot(const Snapshot& snapshot) {
  for (const SegmentPicture& segment : snapshot.segments) {
    EBB_RETURN_IF_ERROR(ValidateSegment(segment));
  }
  for (const HistoryEvent& event : snapshot.history) {
    if (event.device < 0) return absl::InvalidArgumentError("snapshot: an event on no device");
  }
  return absl::OkStatus();
}

}  // namespace ebbtide
