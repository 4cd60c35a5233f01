// SPDX-License-Identifier: Apache-2.0
//
// BlockChecker watches an allocator from outside: it is told of every block that is handed out and
// taken back, knows what lies on the simulated device and what is queued on its streams, and stops
// the program as soon as a block would have shown somebody else's bytes:
//
//   - a block is handed out that overlaps a live one, or that has no memory behind it;
//   - a block is handed out while queued work still touches it, and nothing orders that work before
//     what the block's new owner will queue on its stream;
//   - a block is taken back that is not live;
//   - memory goes from under a live block.
//
// Thread-safe: one lock. But it can only know what it was told: call CheckTakeBack before the
// allocator's Free and CheckHandOut after Allocate, on the same thread. Ownership: device and
// streams must outlive it. Let it go before an allocator that takes live blocks with it.

#ifndef EBBTIDE_ALLOCATOR_BLOCK_CHECKER_H_
#define EBBTIDE_ALLOCATOR_BLOCK_CHECKER_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "allocator/simulated_device.h"
#include "allocator/simulated_streams.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"

namespace ebbtide {

class BlockChecker : private MemoryWatcher {
 public:
  // `streams` may be null: then nothing is ever queued.
  explicit BlockChecker(SimulatedDevice* device, SimulatedStreams* streams = nullptr);
  ~BlockChecker() override;
  BlockChecker(const BlockChecker&) = delete;
  BlockChecker& operator=(const BlockChecker&) = delete;

  // [begin, begin + size) was handed out for use on `stream`. REQUIRES: size is positive.
  void CheckHandOut(const void* begin, Bytes size, StreamId stream = kDefaultStream);

  // The block at `begin` is about to be given back.
  void CheckTakeBack(const void* begin);

  int64_t live_blocks() const;

 private:
  void BeforeTaking(uintptr_t begin, uintptr_t end) override;
  bool OverlapsLive(uintptr_t begin, uintptr_t end) const;

  SimulatedDevice* const device_;
  SimulatedStreams* const streams_;
  mutable std::mutex mutex_;             // taken under the device's, never the other way round
  std::map<uintptr_t, uintptr_t> live_;  // from begin to end
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_BLOCK_CHECKER_H_
