// SPDX-License-Identifier: Apache-2.0
//
// What CachingAllocator is made of, for its own files: caching_allocator.cc (free, look-ups, pools,
// cache), caching_allocator_allocate.cc (a request's way) and caching_allocator_stats.cc (pictures
// of one moment, fork). Threads and ownership: as caching_allocator.h says.
//
// With checks the program's pointer is the payload and lies behind the red zone of the block that
// the arenas know; every function translates first, and everything below it deals in blocks.

#ifndef EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_IMPL_H_
#define EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_IMPL_H_

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/checked_blocks.h"
#include "allocator/page_map.h"

namespace ebbtide {

class CachingAllocator::Impl {
 public:
  Impl(DeviceMemory* device, const Options& options);
  ~Impl();

  absl::StatusOr<void*> Allocate(Bytes size, const Request& request, OutOfMemory* details);
  void Free(void* pointer, Bytes asked);
  bool RecordUse(const void* address, StreamId stream);
  Bytes SizeOf(void* pointer) const;
  std::optional<BlockInfo> Find(const void* pointer) const;
  bool Owns(const void* pointer) const;
  std::string Describe(const void* pointer) const;
  void CheckBlocks() const;
  PoolId CreatePool() { return arenas_.CreatePool(); }
  absl::Status DestroyPool(PoolId pool);
  absl::StatusOr<Bytes> TrimPool(PoolId pool);
  void Settle();
  AllocatorStats Stats() const;
  Snapshot TakeSnapshot() const;
  HistoryRing* history() const { return history_.get(); }
  void ResetPeaks();
  void SetPressureHandler(PressureHandler handler);
  Bytes ReleaseCached(Bytes at_least);
  Bytes LargestFreeRange() const;
  void SetBudget(Bytes budget);
  Bytes Budget() const { return Bytes(ledger_.budget()); }
  void CheckInvariants() const;
  void LockForFork();
  void UnlockAfterFork();

 private:
  class AllLocks;

  AllocatorStats AddUp(const AllLocks& locks) const;

  // Beyond any device and address space; sizes up to here can be rounded and added without
  // overflow.
  static constexpr int64_t kMaxRequest = int64_t{1} << 46;

  // A request as the arenas see it.
  struct Need {
    Bytes asked;  // by the program
    Bytes size;   // of the block, red zones included
    const Request& request;
  };

  static uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  void* TryAllocate(Arena* arena, const Need& need, Shortage* shortage);
  int64_t TrimShared(int64_t at_least);
  bool EndQuarantine(Bytes at_least);
  void EndHolds(const std::vector<void*>& blocks);
  bool ReclaimElsewhere(const Arena* arena, const Shortage& shortage);
  bool WaitAndReclaim(const Shortage& shortage, bool only_if_enough);
  bool CallHandler(Bytes asked, const Shortage& shortage);
  absl::StatusOr<void*> AllocateHard(Arena* arena, const Need& need, Shortage shortage,
                                     OutOfMemory* details);
  absl::Status Fail(Bytes asked, const Shortage& shortage, OutOfMemory* details);
  int64_t CountFrees() const;
  void FreeBlock(void* block, Bytes asked, Arena::AfterFree after);
  void FreeChecked(void* payload, Bytes asked);
  std::optional<BlockInfo> FindBlock(const void* pointer) const;
  Block* FindLarge(uintptr_t address) const;
  static Arena& ArenaOf(const Block* block) { return Arena::Of(block); }
  static Arena& ArenaOf(const SmallCache::Slab* slab) {
    return Arena::Of(SmallCache::ChunkOf(slab));
  }

  const std::unique_ptr<CheckedBlocks> checks_;  // null: no checks
  const std::unique_ptr<HistoryRing> history_;
  Ledger ledger_;
  StreamOrder* const streams_;
  const int64_t capacity_;  // asked for once: it may be a system call
  PageMap pages_;  // words: a Slab with bit 0 set, or the large Block that starts in the page
  ArenaRegistry arenas_;

  mutable std::mutex handler_mutex_;
  std::shared_ptr<const PressureHandler> handler_;
  Ledger::Count failures_{0};
  Ledger::Count pressure_calls_{0};
  Ledger::Count waits_{0};
};

// The locks of all arenas, for looking at all of them at one moment. No arena is made meanwhile:
// what it would hold is in the ledger at once.
class CachingAllocator::Impl::AllLocks {
 public:
  explicit AllLocks(const Impl& impl) : registry_(impl.arenas_.mutex()) {
    impl.arenas_.ForEachLocked([this](Arena& arena) {
      arenas_.push_back(&arena);
      locks_.emplace_back(arena.mutex());
    });
  }
  const std::vector<Arena*>& arenas() const { return arenas_; }

 private:
  const std::lock_guard<std::mutex> registry_;
  std::vector<Arena*> arenas_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CACHING_ALLOCATOR_IMPL_H_
