// SPDX-License-Identifier: Apache-2.0
//
// SmallCache serves blocks of at most 4 KiB. Chunks of 64 KiB from a heap become slabs of equal
// objects; free objects wait in magazines, one for each size class in each of 32 shards. A thread
// always uses the same shard, so that taking and returning an object costs one lock that is hardly
// ever contended, and touches neither the heap nor its lock. Magazines are refilled from the slabs
// and emptied into them in batches.
//
//     thread -> shard -> magazine [ptr ptr ptr ...] <-- batches --> slabs of the class <-- chunks
//     --> heap
//
// Each slab has a bit for each object that says whether the program holds it, changed atomically:
// so a block that is freed twice is found at once, whatever the thread.
//
// Thread safety: Pop, Push and the look-ups may run at any time; functions marked "owner's lock"
// exclude each other by the owner's lock, which is taken before a shard's, never after. Ownership:
// chunks belong to the heap; the owner gives them (AddChunk) and takes them back when they are
// empty.

#ifndef EBBTIDE_ALLOCATOR_SMALL_CACHE_H_
#define EBBTIDE_ALLOCATOR_SMALL_CACHE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "allocator/heap.h"
#include "allocator/ledger.h"
#include "allocator/page_map.h"
#include "allocator/usage_meter.h"

namespace ebbtide {

// A lock of one byte for sections of a few instructions. Unlike a mutex with a queue of waiters it
// may be held across fork() and released in the child.
class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) Wait();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  void Wait() const;
  std::atomic<bool> locked_{false};
};

class SmallCache {
 public:
  static constexpr size_t kMaxSize = 4096;
  static constexpr size_t kChunkSize = size_t{64} << 10;
  static constexpr int kClasses = 20;
  static constexpr int kShards = 32;
  static constexpr size_t kMaxBatch = 32;

  struct Slab;

  // What the shards have counted, for each kind of memory.
  using Counts = std::array<ObjectCounts, kKinds>;

  // What the program holds is added to `live`, and to `meters` of each kind, in batches: behind by
  // at most 64 KiB a shard and kind.
  SmallCache(PageMap* pages, Gauge* live, UsageMeter* meters);
  ~SmallCache();

  // REQUIRES: 0 < size <= kMaxSize.
  static int ClassOf(size_t size);
  // The smallest class whose objects all start at multiples of `alignment`, a power of two of at
  // most kMaxSize.
  static int ClassOf(size_t size, size_t alignment);
  static size_t ClassSize(int size_class);

  // The slab that a word of the page map stands for, or nullptr when it stands for a Block.
  static Slab* SlabOf(uintptr_t word) {
    return (word & 1) != 0 ? reinterpret_cast<Slab*>(word - 1) : nullptr;
  }
  static size_t ObjectSize(const Slab* slab);
  // True when `address` is the start of an object that the program holds.
  static bool IsLive(const Slab* slab, uintptr_t address);

  // The size that was asked for a live object.
  static size_t AskedSize(const Slab* slab, uintptr_t address);
  // The start of the object that `address` lies in.
  static uintptr_t StartOf(const Slab* slab, uintptr_t address);
  // A block of the heap that the slab lies in.
  static Block* ChunkOf(const Slab* slab);
  // The kind of memory that the slab is made of.
  static Kind KindOf(const Slab* slab);

  // Takes an object from this thread's magazine for a request of `asked` bytes, or returns 0 when
  // that is empty.
  uintptr_t Pop(int size_class, size_t asked);

  // Takes an object back. Aborts unless it is live. Returns how many objects of the overflowing
  // magazine were put into `overflow` (room for kMaxBatch); the caller hands them to ReturnObjects.
  size_t Push(Slab* slab, uintptr_t address, uintptr_t* overflow);

  // As Push, but the object is not handed out again before it is given to ReturnObjects.
  void Retire(Slab* slab, uintptr_t address);

  // Owner's lock. Refills the thread's magazine from the slabs of a class and takes an object, or
  // returns 0 when no slab has a free one (or other threads were quicker).
  uintptr_t TakeFromSlabs(int size_class, size_t asked);

  // Owner's lock. Makes a slab of a live heap block of kChunkSize, aligned to it.
  void AddChunk(int size_class, Block* chunk, Kind kind);

  // Owner's lock. Puts objects back into their slabs; chunks that became empty go to `empty`.
  void ReturnObjects(const uintptr_t* objects, size_t count, std::vector<Block*>* empty);

  // Owner's lock. Empties all magazines; chunks that became empty go to `empty`.
  void Flush(std::vector<Block*>* empty);

  // Owner's lock. Exact, at one moment for all shards.
  Counts Count() const;

  // Owner's lock. All shards at once, for fork().
  void LockShards() const;
  void UnlockShards() const;

 private:
  struct Shard;

  Shard& MyShard() const;
  void Publish(Shard* shard, Kind kind, int64_t bytes, int64_t asked);
  static void CheckStart(const Slab* slab, uintptr_t address);
  void CountFree(Shard* shard, Slab* slab, uint32_t index);
  size_t TakeBatch(int size_class, size_t wanted, uintptr_t* out);
  void Link(Slab* slab);
  void Unlink(Slab* slab);
  void Retire(Slab* slab, std::vector<Block*>* empty);

  PageMap* const pages_;
  Gauge* const live_;
  UsageMeter* const meters_;
  std::unique_ptr<Shard[]> shards_;
  std::array<Slab*, kClasses> available_{};  // slabs with free objects
  std::deque<Slab> storage_;  // never shrinks, so that a stale pointer into it is still a Slab
  std::vector<Slab*> spare_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SMALL_CACHE_H_
