// SPDX-License-Identifier: Apache-2.0
//
// AwaitingBlocks keeps what other streams than a block's own do with it: which ones use it while it
// is live, and, once it is freed, which of them have not passed yet. Events are recorded when the
// block is freed, one for each stream; events of one stream are done in the order in which they
// were recorded, so that a poll looks only at the first of each stream.
//
// Thread safety: none, the owner locks; MayHaveUses may be called without the lock. Ownership: the
// events are released when they are done or with the object; `streams` must outlive it.

#ifndef EBBTIDE_ALLOCATOR_AWAITING_BLOCKS_H_
#define EBBTIDE_ALLOCATOR_AWAITING_BLOCKS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "allocator/stream_order.h"

namespace ebbtide {

class AwaitingBlocks {
 public:
  explicit AwaitingBlocks(StreamOrder* streams) : streams_(streams) {}
  ~AwaitingBlocks();
  AwaitingBlocks(const AwaitingBlocks&) = delete;
  AwaitingBlocks& operator=(const AwaitingBlocks&) = delete;

  // `stream` uses the live block at `address`. Again and again is the same as once.
  void AddUse(uintptr_t address, StreamId stream);

  // False when no live block has a use: then Free need not ask.
  bool MayHaveUses() const { return use_count_.load(std::memory_order_relaxed) > 0; }

  // The live block at `address`, of `bytes` bytes, is freed. True when it must wait for others,
  // and so will come out of Poll; false when nobody else uses it.
  bool Free(uintptr_t address, int64_t bytes);

  // The same for a block that waits for EndHold, whoever else uses it.
  void Hold(uintptr_t address, int64_t bytes);
  // True when the block at `address` waits for nobody else either, and so is done. REQUIRES: Hold.
  bool EndHold(uintptr_t address);

  // Appends the addresses of the blocks that nobody uses any more to `done`. With `wait` those are
  // all that there are but for those on hold, after having waited for the device.
  void Poll(bool wait, std::vector<uintptr_t>* done);

  bool Contains(uintptr_t address) const { return waiting_.contains(address); }
  int64_t bytes() const { return bytes_; }
  size_t blocks() const { return waiting_.size(); }

 private:
  struct Waiting {
    int64_t bytes = 0;
    int events = 0;  // not done yet; a hold counts as one
    // Streams whose event could not be recorded yet, because they are being captured.
    absl::InlinedVector<StreamId, 2> unrecorded;
  };
  struct Mark {
    StreamOrder::Event event;
    uintptr_t address;
  };

  bool Record(uintptr_t address, StreamId stream, Waiting* waiting);
  void RecordMissing(std::vector<uintptr_t>* done);
  bool TryFinish(uintptr_t address);
  void FinishIfDone(uintptr_t address, std::vector<uintptr_t>* done) {
    if (TryFinish(address)) done->push_back(address);
  }

  StreamOrder* const streams_;
  absl::flat_hash_map<uintptr_t, absl::InlinedVector<StreamId, 2>> uses_;  // of live blocks
  std::atomic<int64_t> use_count_{0};                                      // uses_.size()
  absl::flat_hash_map<uintptr_t, Waiting> waiting_;                        // freed blocks
  absl::flat_hash_map<StreamId, std::deque<Mark>> marks_;                  // oldest first
  std::vector<uintptr_t> unrecorded_;
  int64_t bytes_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_AWAITING_BLOCKS_H_
