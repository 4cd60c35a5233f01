// SPDX-License-Identifier: Apache-2.0
//
// CachingAllocator hands out blocks of a DeviceMemory, keeps freed ones for the next request and
// never holds more than its budget: committed bytes, cached blocks and rounding included, at no
// moment. When a request does not fit, it gives cached memory back to the device, then asks the
// pressure handler to free something, then fails.
//
// Each stream has an arena of its own, with its own lock. What is freed on a stream is handed out
// again at once on that stream: work that is queued there later runs later. To other streams memory
// passes in whole granules, once the device is done with what was queued when they were freed. On a
// device without streams, such as host memory, there is one arena, for all threads.
//
// Memory is committed in granules of the device and may be given back or moved a granule at a time
// (where the device can), so free addresses between live blocks cost nothing and a request needs
// budget, not a hole of the right size. Blocks up to 4 KiB are served from slabs through caches
// that are spread over the threads; they rarely touch the arena's lock. Larger ones are found in
// O(1) by size class, within 1/32 of the best fit. Bookkeeping lies outside the blocks, which are
// never read or written, so the memory need not be accessible to this process.
//
// Thread safety: all functions may be called from any thread at once, and blocks may be freed by
// another thread than the one that allocated them. Ownership: the device and the streams must
// outlive the allocator; at destruction all memory goes back, live blocks included. Freeing what
// was not allocated here, an interior pointer or a block a second time aborts with a text that says
// so.

#ifndef EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_H_
#define EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/arena.h"
#include "allocator/arena_registry.h"
#include "allocator/checked_blocks.h"
#include "allocator/device_memory.h"
#include "allocator/history_ring.h"
#include "allocator/out_of_memory.h"
#include "allocator/snapshot.h"
#include "allocator/stream_order.h"
#include "allocator/usage.h"
#include "base/bytes.h"

namespace ebbtide {

// One consistent picture. held = asked + rounding + awaiting + cached; allocations - frees = live
// blocks.
struct AllocatorStats {
  Bytes budget = Bytes::Max();
  Bytes held;         // committed at the device, in whole granules
  Bytes live;         // in blocks handed out, each as SizeOf says: asked + rounding
  Bytes asked;        // the same blocks with the sizes that were asked for
  Bytes rounding;     // live - asked
  Bytes awaiting;     // in freed blocks that other streams may still use or that are in quarantine
  Bytes cached;       // free and committed
  Bytes quarantined;  // the part of awaiting that Options::check keeps
  Bytes reserved;     // addresses, with or without memory behind them
  Bytes peak_held;    // exact
  Bytes peak_live;    // exact for large blocks; of small ones up to 128 KiB a thread may be missed
  Bytes peak_awaiting;
  int64_t live_blocks = 0;
  int64_t allocations = 0;  // successful ones
  int64_t frees = 0;
  int64_t planned = 0;           // of the allocations: at places that were computed ahead
  int64_t failures = 0;          // allocations that found nothing, or a device that failed
  int64_t device_commits = 0;    // calls that obtained memory
  int64_t device_decommits = 0;  // calls that gave memory back
  int64_t device_moves = 0;      // calls that moved memory
  int64_t pressure_calls = 0;    // calls of the pressure handler
  int64_t waits = 0;             // times that a request waited for the device
  int64_t arenas = 0;
  // The same by kind of memory, with peaks and totals (usage.h): small + large = the whole.
  Usage small;
  Usage large;
  // And by pool, both kinds together, in the order of their making, the shared one first; those
  // that were used. What a destroyed pool did counts for the shared one from then on.
  std::vector<PoolUsage> pools;
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
    // Most bytes ever held; with 0 every request fails. REQUIRES: not negative. A budget below what
    // is held already takes effect as memory is freed.
    Bytes budget = Bytes::Max();
    // The order of the device's streams; null: it has none. Must outlive the allocator.
    StreamOrder* streams = nullptr;
    // When and how far free memory is moved instead of growing; see arena.h.
    Arena::Limits limits = {};
    // Whether the requests of the default stream outside of pools are planned once they repeat
    // themselves (planned_placement.h). It costs some 1.5 MB and makes requests slower; it pays
    // where a device cannot take memory away in parts (docs/allocator.md has figures).
    bool planned = false;
    // How many events the history remembers; 0: there is none.
    int64_t history_events = 0;
    // Looks for misuse of the memory, at a cost: checked_blocks.h says for what and what it takes.
    // Red zones and quarantine count as held; the quarantine is given up before the handler is
    // called. Without red zones and quarantine, after a warning, where the host cannot reach the
    // bytes, or not before a stream is done with them: on a device with streams.
    std::optional<CheckedBlocks::Options> check = std::nullopt;
  };

  // Whom a block is for.
  struct Request {
    StreamId stream = kDefaultStream;
    PoolId pool = kSharedPool;
    // The block will stay for long, as parameters do: on devices that cannot take memory away in
    // parts it is kept apart from those that come and go.
    bool stays = false;
    // Of the block's start: a power of two, at most 2 MiB. Less than 64 is the same as 64. A block
    // whose size is no multiple of it may take up to that much more.
    size_t alignment = 64;
  };

  // What is known of a live block.
  struct BlockInfo {
    void* begin = nullptr;
    Bytes size;   // as SizeOf says
    Bytes asked;  // as it was asked for
    StreamId stream = kDefaultStream;
    PoolId pool = kSharedPool;  // also for blocks of a destroyed pool
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
  // numbers in *details unless it is null); InvalidArgument for a negative size; the device's own
  // error when it has failed rather than have no more.
  absl::StatusOr<void*> Allocate(Bytes size, OutOfMemory* details = nullptr) {
    return Allocate(size, Request(), details);
  }
  // The same for a stream, a pool and an alignment. FailedPrecondition when the pool does not exist
  // (any more), InvalidArgument for an alignment that is none.
  absl::StatusOr<void*> Allocate(Bytes size, const Request& request,
                                 OutOfMemory* details = nullptr);

  // Takes a block back: all that will ever use it on its stream has been queued. nullptr is
  // ignored. Calls no handler and fails never.
  void Free(void* block) { Free(block, Bytes(-1)); }
  // The same for callers that know the size: one that differs from what was asked for aborts.
  void Free(void* block, Bytes asked);

  // Work on `stream` uses the live block that `address` lies in, at its start or not: once freed,
  // the block is handed out again only after what is queued there at that moment is done. Its own
  // stream adds nothing. Returns false, and does nothing, for an address in no live block.
  bool RecordUse(const void* address, StreamId stream);

  // Bytes usable in a block: its size rounded up to the allocator's classes, or as it was asked for
  // with Options::check. REQUIRES: `block` is live.
  Bytes SizeOf(void* block) const;

  // The live block that `address` lies in, at its start or not; nothing for any other address. Not
  // to be asked while that very block is freed.
  std::optional<BlockInfo> Find(const void* address) const;

  // True when `address` is the start of a live block of this allocator. For adapters that see
  // foreign pointers as well; racing with Allocate and Free of the very block gives either answer.
  bool Owns(const void* address) const;

  // What is known of the block that `address` lies in or beside, live or freed, for a report of the
  // caller's: lines that say its size and state and, with Options::check, who allocated and freed
  // it. Empty when nothing is.
  std::string Describe(const void* address) const;

  // With Options::check: looks at all red zones and at all that waits in the quarantine, and stops
  // the program with a report when something was written there. Else nothing. Linear.
  void CheckBlocks() const;

  // A pool has memory of its own: nobody else gets what is cached in it, so that the addresses that
  // a captured graph uses stay the graph's. Blocks may outlive their pool, which is destroyed at
  // once for new requests; its cache then serves all. FailedPrecondition when there is no such
  // pool.
  PoolId CreatePool();
  absl::Status DestroyPool(PoolId pool);
  // Gives the cached memory of a pool back to the device, waiting for the device where needed.
  absl::StatusOr<Bytes> TrimPool(PoolId pool);

  // Frees blocks that other streams have done with. Never waits. Requests that find nothing do this
  // by themselves.
  void Settle();

  // The numbers of this moment. Stops all other calls for as long as it takes to add them up.
  AllocatorStats stats() const;

  // What lies where at this moment, and the history if there is one: PyTorch's memory viewer shows
  // it (snapshot_pickle.h). Stops all other calls meanwhile.
  Snapshot TakeSnapshot() const;

  // What has happened; null when Options::history_events is 0. Records nothing until it is told
  // what (HistoryRing::Record).
  HistoryRing* history() const;

  // Restarts all peaks from the present values. What came and went is never reset: take the
  // difference of two readings.
  void ResetPeaks();

  // Called without any lock of the allocator, on the thread whose request does not fit, after all
  // cached memory was given back, by waiting for the device if that was enough. It may free blocks
  // and allocate; an allocation inside it that does not fit either fails at once and calls no
  // handler. It is asked again as long as it returns true and blocks are being freed; after eight
  // rounds without a single Free the request fails. An empty function removes the handler; a call
  // of the old one that is under way still ends.
  void SetPressureHandler(PressureHandler handler);

  // Gives cached memory back to the device until `at_least` bytes have gone or nothing is left to
  // give; waits for the device where it may still use some of that. Private pools keep theirs.
  // Returns the bytes given back, which may be more by rounding. Bytes::Max() empties the cache.
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
