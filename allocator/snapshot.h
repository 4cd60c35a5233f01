// SPDX-License-Identifier: Apache-2.0
//
// A picture of an allocator's memory at one moment: its segments, the blocks that fill them, and
// the events that led there. The words are those of PyTorch's memory viewer, so that whoever knows
// its plots can read ours (snapshot_pickle.h writes the file that the viewer opens).
//
// Plain values: copy them freely; nothing is owned, nothing is locked. Whoever takes a picture
// makes it at one moment, under whatever lock that needs, and ValidateSnapshot tells whether it
// adds up.

#ifndef EBBTIDE_ALLOCATOR_SNAPSHOT_H_
#define EBBTIDE_ALLOCATOR_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"

namespace ebbtide {

enum class BlockState : uint8_t {
  kActiveAllocated,     // handed out
  kActiveAwaitingFree,  // taken back, but work on another stream may still use it
  kInactive,            // free for reuse
};

enum class SegmentType : uint8_t { kSmall, kLarge };

// Which pool a segment belongs to. {0, 0} is the common one; others are private, for graph capture.
struct SegmentPool {
  int64_t first = 0;
  int64_t second = 0;
  friend bool operator==(const SegmentPool&, const SegmentPool&) = default;
};

struct BlockPicture {
  uint64_t address = 0;
  Bytes size;       // what it occupies
  Bytes requested;  // what was asked for, at most `size`; 0 when inactive
  BlockState state = BlockState::kInactive;
  friend bool operator==(const BlockPicture&, const BlockPicture&) = default;
};

// A range of addresses with memory behind all of it. Its blocks stand in the order of their
// addresses and fill it without a gap.
struct SegmentPicture {
  uint64_t address = 0;
  Bytes size;
  int device = 0;
  StreamId stream = kDefaultStream;
  SegmentPool pool;
  SegmentType type = SegmentType::kLarge;
  bool expandable = false;  // memory is mapped and unmapped in pieces
  std::vector<BlockPicture> blocks;
  friend bool operator==(const SegmentPicture&, const SegmentPicture&) = default;
};

enum class HistoryAction : uint8_t {
  kAlloc,
  kFreeRequested,  // the program gave the block back
  kFreeCompleted,  // and it can be handed out again
  kSegmentAlloc,   // memory and its addresses from the device
  kSegmentFree,
  kSegmentMap,  // memory put behind addresses that were reserved before
  kSegmentUnmap,
  kSnapshot,  // a picture was taken; no address, no size
  kOom,       // a request failed; `address` holds the bytes that the device had free
};
inline constexpr int kHistoryActions = 9;

struct HistoryEvent {
  HistoryAction action = HistoryAction::kAlloc;
  int device = 0;
  StreamId stream = kDefaultStream;
  uint64_t address = 0;
  Bytes size;           // of kAlloc: what was asked for; of kOom: the request
  int64_t time_us = 0;  // microseconds since 1970
  friend bool operator==(const HistoryEvent&, const HistoryEvent&) = default;
};

struct Snapshot {
  std::vector<SegmentPicture> segments;
  std::vector<HistoryEvent> history;  // all devices, oldest first
  // The allocator's settings in force and its numbers by kind and pool, for people: name and value.
  std::vector<std::pair<std::string, std::string>> settings;
};

// The word that PyTorch's files have for it. The viewer knows the state of a block that waits for a
// stream as "active_pending_free", although PyTorch's documentation says "active_awaiting_free".
const char* Word(BlockState state);
const char* Word(SegmentType type);
const char* Word(HistoryAction action);

// Errors: InvalidArgument with the address of the first segment whose blocks do not fill it, or
// whose block asked for more than it has; or for a negative device.
absl::Status ValidateSnapshot(const Snapshot& snapshot);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SNAPSHOT_H_
