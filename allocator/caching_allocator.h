// SPDX-License-Identifier: Apache-2.0
//
// CachingAllocator hands out blocks of a DeviceMemory, keeps freed ones for the next request and
// never holds more than its budget: committed bytes, cached blocks and rounding included, at no
// moment. When a request does not fit, it gives cached memory back to the device, then asks the
// pressure handler to free something, then fails.
//
// Memory is committed in granules of the device and may be given back a granule at a time (where
// the device can), so free addresses between live blocks cost nothing and a request needs budget,
// not a hole of the right size. Blocks up to 4 KiB are served from slabs through caches that are
// spread over the threads; they rarely touch the allocator's lock. Larger ones are found in O(1) by
// size class, within 1/32 of the best fit. Bookkeeping lies outside the blocks, which are never
// read or written, so the memory need not be accessible to this process.
//
// Thread safety: all functions may be called from any thread at once, and blocks may be freed by
// another thread than the one that allocated them. Ownership: the DeviceMemory must outlive the
// allocator; at destruction all memory goes back, live blocks included. Freeing what was not
// allocated here, an interior pointer or a block a second time aborts with a text that says so.

#ifndef EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_H_
#define EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "allocator/device_memory.h"
#include "allocator/out_of_memory.h"
#include "base/bytes.h"

namespace ebbtide {

// One consistent picture. held = live + cached; allocations - frees = live blocks.
struct AllocatorStats {
  Bytes budget = Bytes::Max();
  Bytes held;       // committed at the device, in whole granules
  Bytes live;       // in blocks handed out, each as SizeOf says
  Bytes cached;     // held - live
  Bytes reserved;   // addresses, with or without memory behind them
  Bytes peak_held;  // exact
  Bytes peak_live;  // exact for large blocks; small ones may be missed for up to 64 KiB a thread
  int64_t live_blocks = 0;
  int64_t allocations = 0;  // successful ones
  int64_t frees = 0;
  int64_t failures = 0;          // allocations that ended in ResourceExhausted
  int64_t device_commits = 0;    // calls that obtained memory
  int64_t device_decommits = 0;  // calls that gave memory back
  int64_t pressure_calls = 0;    // calls of the pressure handler
};

// What the pressure handler is told.
struct MemoryPressure {
  Bytes requested;  // the allocation that does not fit, before rounding
  Bytes shortfall;  // bytes that must become free before it can fit, at least 1
  bool needs_contiguous =
      false;  // freeing must also make room in one piece (whole-segment devices)
};

class CachingAllocator {
 public:
  struct Options {
    // Most bytes ever held. A budget below what is held already takes effect as memory is freed.
    Bytes budget = Bytes::Max();
  };

  // Returns true when something was freed and the request is worth another try.
  using PressureHandler = std::function<bool(const MemoryPressure&)>;

  explicit CachingAllocator(DeviceMemory* device) : CachingAllocator(device, Options()) {}
  CachingAllocator(DeviceMemory* device, Options options);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns a block of at least `size` bytes, aligned to 64 bytes at least, content undefined.
  // Size 0 returns nullptr. Errors: ResourceExhausted with FormatOutOfMemory's text (and the
  // numbers in *details unless it is null); InvalidArgument for a negative size.
  absl::StatusOr<void*> Allocate(Bytes size, OutOfMemory* details = nullptr);

  // Takes a block back. nullptr is ignored. Calls no handler and fails never.
  void Free(void* block);

  // Bytes usable in a block: its size rounded up to the allocator's classes. REQUIRES: `block` is
  // live.
  Bytes SizeOf(void* block) const;

  // True when `address` is the start of a live block of this allocator. For adapters that see
  // foreign pointers as well; racing with Allocate and Free of the very block gives either answer.
  bool Owns(const void* address) const;

  // The numbers of this moment. Stops all other calls for as long as it takes to add them up.
  AllocatorStats stats() const;

  // Restarts peak_held and peak_live from the present values.
  void ResetPeaks();

  // Called without any lock of the allocator, on the thread whose request does not fit, after all
  // cached memory was given back. It may free blocks and allocate; an allocation inside it that
  // does not fit either fails at once and calls no handler. It is asked again as long as it returns
  // true and blocks are being freed; after eight rounds without a single Free the request fails. An
  // empty function removes the handler; a call of the old one that is under way still ends.
  void SetPressureHandler(PressureHandler handler);

  // Gives cached memory back to the device until `at_least` bytes have gone or nothing is left to
  // give. Returns the bytes given back, which may be more by rounding. Bytes::Max() empties the
  // cache.
  Bytes ReleaseCached(Bytes at_least);

  // The most contiguous free addresses in segments that are reserved now, with or without memory
  // behind them. On a device with partial decommit a larger request takes a new segment.
  Bytes largest_free_range() const;

  // Changes the limit. When more is held, cached memory is given back at once as far as it goes;
  // until live blocks are freed, held may stay above the new limit, and nothing grows.
  void set_budget(Bytes budget);
  Bytes budget() const;

  // Walks all bookkeeping and aborts on the first contradiction. Linear in everything: for tests.
  void CheckInvariants() const;

  // Around fork(): takes all locks, so that the child gets them in a usable state; call
  // UnlockAfterFork in the parent and in the child, from the thread that locked.
  void LockForFork();
  void UnlockAfterFork();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_H_
