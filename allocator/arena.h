// SPDX-License-Identifier: Apache-2.0
//
// Arena is the part of the caching allocator that serves one stream in one pool. What is freed here
// is handed out here again at once: the stream's own order keeps the old work before the new.
// Memory gets to other arenas only as whole granules, and only when the device is done with
// everything that had been queued when they were freed ("quiet"; heap.h). A block that other
// streams used too waits until they have passed.
//
//     request -> small cache -> slabs -> small heap
//             -> large heap      free of a block that other streams used -> awaiting -> heap
//
// Growth is held against what the program has needed so far: as long as held stays within `slack`
// of the most that was ever live, new memory is obtained; beyond, free memory moves from where it
// lies to where it is needed. Each byte that moves loosens the limit a little, so that a program
// that repeats itself soon moves nothing.
//
// An arena can also plan: once its requests repeat themselves, it computes a place for each of an
// iteration ahead (planned_placement.h) and puts blocks there as long as the program keeps to it,
// in a region of a heap of its own. A place that is not free, or whose memory cannot be had, is
// nothing worse than a request without a plan.
//
// Thread safety: all functions may be called from any thread; each arena has a lock of its own,
// under which the device is called. Several arenas' locks are held together only to look at all of
// them, in the order of their making. Ownership: ledger, pages and streams must outlive it.

#ifndef EBBTIDE_ALLOCATOR_ARENA_H_
#define EBBTIDE_ALLOCATOR_ARENA_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "allocator/awaiting_blocks.h"
#include "allocator/heap.h"
#include "allocator/ledger.h"
#include "allocator/page_map.h"
#include "allocator/planned_placement.h"
#include "allocator/small_cache.h"
#include "allocator/snapshot.h"
#include "allocator/stream_order.h"
#include "allocator/usage.h"
#include "allocator/usage_meter.h"

namespace ebbtide {

// Why a request did not fit.
struct Shortage {
  int64_t bytes = 0;              // that must become free before it can fit
  bool device_exhausted = false;  // the device has no more, whatever the budget
  bool needs_contiguous = false;
  absl::Status failure = {};  // of the device, when it did not work rather than have no more
};

class Arena : private HeapOwner {
 public:
  struct Limits {
    // By how much of the most that was ever live held may exceed it before free memory is moved.
    double slack = 0.005;
    // By what part of each moved byte the limit is loosened.
    double loosening = 0.02;
    // Calls of the device that one request may cause for keeping within it.
    int calls_for_slack = 16;
  };

  // `streams` is null on a device without streams. REQUIRES: all pointers outlive the arena.
  Arena(Ledger* ledger, PageMap* pages, StreamOrder* streams, StreamId stream, Limits limits);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  StreamId stream() const { return stream_id.load(std::memory_order_relaxed); }

  // The arena that a block is of.
  static Arena& Of(const Block* block) { return *static_cast<Arena*>(block->heap->owner()); }

  // The pool that the arena serves, for the registry. While `keeps_cache` is set GiveBack leaves
  // the arena's cache alone.
  void SetPool(uint64_t pool, bool keeps_cache) {
    keeps_cache_.store(keeps_cache, std::memory_order_relaxed);
    pool_.store(pool, std::memory_order_release);
  }
  bool keeps_cache() const { return keeps_cache_.load(std::memory_order_relaxed); }
  uint64_t pool() const { return pool_.load(std::memory_order_acquire); }

  // Plans from the next request on. REQUIRES: nobody else uses the arena yet.
  void StartPlanning();

  // The arena serves another pool from now on: CountLocked's pool starts anew.
  void StartPool();

  // True when no block of it is live or awaited.
  bool IsEmpty() const;

  // Makes an empty arena whose stream was destroyed serve `stream`; waits for the device if that is
  // not done with the old one. Returns false, and does nothing, for all other arenas.
  bool TryServe(StreamId stream);

  // A block of `size` bytes, a multiple of 64 above SmallCache::kMaxSize, recorded as one of
  // `asked`, from this arena's free memory or by growth within the budget; nullptr and *shortage
  // when it does not fit. Calls no handler and never waits for the device. The block's start is in
  // the page map.
  void* Allocate(size_t size, size_t alignment, Heap::End end, int64_t asked, Shortage* shortage);
  // The same for an object of a class of the small cache.
  void* AllocateSmall(int size_class, size_t asked, Shortage* shortage);

  // Whether a freed block may be handed out again, as far as other streams have done with it, or
  // waits for EndHold.
  enum class AfterFree { kReuse, kHold };

  // What the page map said of an address. Takes the block back; aborts unless `address` is the
  // start of a live block, and, unless `asked` is negative, one of that size.
  void FreeLarge(Block* block, uintptr_t address, int64_t asked, AfterFree after);
  void FreeSmall(SmallCache::Slab* slab, uintptr_t address, int64_t asked, AfterFree after);

  // Ends the wait of a block that was freed with kHold.
  void EndHold(uintptr_t address);

  // Another stream uses the live block that starts at `address`.
  void AddUse(uintptr_t address, StreamId stream);

  // True when a live block starts at `address`, of which the page map said `block`.
  bool IsLive(const Block* block, uintptr_t address) const;
  // The same. REQUIRES: the caller holds mutex().
  bool IsLiveLocked(const Block* block, uintptr_t address) const;

  // Frees what other streams have done with; all of it, by waiting, with `wait`. Returns whether
  // anything was freed.
  bool Settle(bool wait);

  // Gives quiet cached memory back to the device until `wanted` bytes have gone or nothing is left,
  // with `wait` after having waited for the device. Returns the bytes.
  int64_t GiveBack(int64_t wanted, bool wait);

  // The same also if the arena keeps its cache, and with `small_too` from the small caches.
  int64_t Trim(int64_t wanted, bool wait, bool small_too);

  // Bytes that waiting might make available, at most.
  int64_t CountWaitable() const;

  Bytes LargestFree() const;
  int64_t CountFrees() const;

  // What Stats adds up.
  struct Counts {
    Usage kinds[kKinds];
    Usage pool;           // since the arena serves its pool
    int64_t planned = 0;  // allocations at the place that a plan gave them
  };
  // The arena's lock, for those who look at several at one moment, and around fork().
  std::mutex& mutex() const { return mutex_; }
  // REQUIRES: the caller holds mutex(), here and below.
  Counts CountLocked() const;
  void RestartPeaksLocked();
  // Appends a picture of what has memory.
  void AppendPictureLocked(std::vector<SegmentPicture>* segments) const;
  const SmallCache& small() const { return small_; }
  // Walks everything, aborts on a contradiction, returns the committed bytes.
  int64_t CheckLocked() const;

 private:
  using Lock = std::lock_guard<std::mutex>;

  // Blocks below this size have a heap of their own, so that small ones that live long do not sit
  // between large ones and hold a granule each there.
  static constexpr size_t kSmallHeapBelow = size_t{256} << 10;

  Block* FindBlock(size_t size, size_t alignment, Heap::End end, Shortage* shortage);
  void* HandOut(Block* block, int64_t asked);
  // heaps_[0] is for small blocks.
  Kind KindOf(const Heap* heap) const { return heap == &heaps_[0] ? Kind::kSmall : Kind::kLarge; }
  UsageMeter& MeterOf(Kind kind) { return meters_[static_cast<int>(kind)]; }
  // What the heaps of that kind hold.
  Tally HeldOf(Kind kind) const;
  void NoteCached(Kind kind) { MeterOf(kind).NoteCached(HeldOf(kind).now()); }

  Heap& PickHeap(size_t size, size_t alignment);
  // Slabs, which ask for an alignment, stay for too long.
  bool MayUseRegion(size_t alignment) const {
    return planned_ != nullptr && alignment == Heap::kAlignment;
  }
  bool HasCommitted(size_t size) const {
    return heaps_[size < kSmallHeapBelow ? 0 : 1].HasCommitted(size);
  }

  Block* TryObtain(size_t size, size_t alignment, Heap::End end, Shortage* shortage);
  Block* TryPartial(Heap* heap, size_t size, size_t alignment, Heap::End end, Shortage* shortage);
  Block* TryWhole(Heap* heap, size_t size, size_t alignment, Heap::End end, Shortage* shortage);
  Block* CarveOrReserve(Heap* heap, size_t size, size_t alignment, Heap::End end,
                        Shortage* shortage);
  bool CommitInBudget(Heap* heap, Block* block, Shortage* shortage);
  int64_t Reuse(Heap* heap, Block* block, int64_t wanted, int calls);
  int64_t GiveBackQuiet(int64_t wanted, int* calls);
  int64_t Allowance(size_t size) const;
  bool IsEmptyLocked() const;
  uint64_t Quiet();
  void WaitUntilQuiet();
  bool SettleLocked(bool wait, int64_t* given_back = nullptr);
  bool BeginWait(uintptr_t address, int64_t bytes, AfterFree after);
  void RestartMeters();
  void* AllocatePlanning(size_t size, size_t alignment, Heap::End end, int64_t asked,
                         Shortage* shortage);
  Block* TryPlace(const PlannedPlacement::Request& request, size_t size);
  void PrepareRegion(bool begins);
  void GiveBackUnplanned();
  void Learn(const PlannedPlacement::Problem& problem);
  void RememberFree(uintptr_t address, int64_t asked, bool completed);
  void AppendBlock(const Block& block, uintptr_t begin, uintptr_t end,
                   std::vector<BlockPicture>* blocks) const;
  void ReleaseAwaited(uintptr_t address);
  void ReleaseBlock(Block* block);
  bool FlushSmall();
  void ReleaseChunks(const std::vector<Block*>& chunks);
  int64_t EnforceBudget();

  Ledger* const ledger_;
  PageMap* const
      pages_;  // words: a Slab with bit 0 set, or the large Block that starts in the page
  StreamOrder* const streams_;
  const Limits limits_;
  const bool partial_;
  std::atomic<bool> keeps_cache_{false};
  std::atomic<uint64_t> pool_{0};

  mutable std::mutex mutex_;    // guards all that follows, but for the shards of small_
  std::deque<Heap> heaps_;      // of small blocks, of large ones, and of the region if it plans
  std::vector<Heap*> by_gain_;  // first those that give most for a call of the device
  UsageMeter meters_[kKinds];
  SmallCache small_;
  AwaitingBlocks awaiting_;
  Usage before_[kKinds];  // of earlier pools: what came and went, and the highest peaks
  std::unique_ptr<PlannedPlacement> planned_;  // null: it does not plan
  int64_t planned_blocks_ = 0;                 // that got the place of the plan
  // A request that did not fit and may be tried again.
  PlannedPlacement::Request unserved_{-1, std::nullopt};
  size_t unserved_size_ = 0;
  bool region_is_new_ = false;  // no iteration has begun since it was made

  // Frees carry the stamp of their moment; everything up to quiet_ is quiet. A mark is an event on
  // the stream that, once it is done, makes stamps up to mark_stamp_ so.
  uint64_t stamp_ = 1;
  uint64_t last_freed_ = 0;
  uint64_t quiet_ = 0;
  uint64_t mark_stamp_ = 0;
  StreamOrder::Event mark_ = 0;
  bool marked_ = false;
  bool stream_gone_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_ARENA_H_
