// SPDX-License-Identifier: Apache-2.0
//
// CheckedBlocks finds programs that misuse memory: it is a layer around any allocator of memory
// that this process can read and write. Each block gets a red zone before and after it, is filled
// with a poison when it is freed, and then waits in a quarantine before the allocator may hand its
// memory out again. So it notices
//
//     overrun and underrun    when the block is freed: its red zones were written to
//     use after free          when it leaves the quarantine: its poison was written over
//     double free             at once, also for a while after it left
//     wrong size              at once, where a free says the size
//     foreign pointer         at once, with the block in which it points if there is one
//     memory handed out twice at once: the allocator's own mistake
//
// and aborts with a report on stderr that says what is known of the block: its size, what was
// written where, by which threads and from where it was allocated and freed.
//
// The allocator stays as it is; its adapter asks it for more and takes what comes out:
//
//     void* Allocate(Bytes size) {
//       return checked.OnAllocate(allocator.Allocate(checked.Wrap(size)), size);
//     }
//     void Free(void* payload) {
//       for (void* block : checked.OnFree(payload)) allocator.Free(block);
//     }
//
// When memory is short, Drain gives it what waits. A block costs two red zones and some 500 bytes
// of notes, a call about ten microseconds and a pass over the block: this is for finding mistakes.
//
// Where the bytes are out of this process's reach (Options::bytes_reachable) there are no red
// zones, no poison and no quarantine; what needs only the notes is still found, with both stacks.
//
// Threads: every function may be called from any thread. Ownership: blocks belong to the allocator
// and must stay readable and writable until they are returned by OnFree or Drain.

#ifndef EBBTIDE_ALLOCATOR_CHECKED_BLOCKS_H_
#define EBBTIDE_ALLOCATOR_CHECKED_BLOCKS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "allocator/call_stack.h"
#include "base/bytes.h"
#include "base/mutex.h"

namespace ebbtide {

// What is known of one block.
struct CheckedBlock {
  enum class State : uint8_t {
    kLive,
    kBeingFreed,   // by the thread that `freed` tells of
    kQuarantined,  // freed, and its memory not yet given back
    kGone,         // its memory went back to the allocator, and may be another block's by now
  };

  uintptr_t payload = 0;
  Bytes size;          // as asked for
  size_t front = 0;    // bytes from the allocator's block to the payload
  int64_t number = 0;  // counts allocations, from 1
  State state = State::kLive;
  int64_t allocating_thread = 0;
  int64_t freeing_thread = 0;
  CallStack allocated;
  CallStack freed;
};

class CheckedBlocks {
 public:
  struct Options {
    // On each side of a block. A multiple of 64, so that blocks keep that alignment.
    Bytes red_zone = Bytes(64);
    // The most bytes of freed blocks that wait. A larger block does not wait at all.
    Bytes quarantine = Bytes(int64_t{64} << 20);
    // False for memory that this process cannot read and write, or not yet when it is freed because
    // work that is queued on a device still uses it.
    bool bytes_reachable = true;
  };

  // Where a live block is.
  struct Extent {
    void* block;    // the allocator's
    void* payload;  // the program's
    Bytes size;     // as asked for
  };

  // At one moment.
  struct Counts {
    int64_t live_blocks = 0;
    Bytes live;         // as asked for
    Bytes quarantined;  // red zones included
  };

  CheckedBlocks() : CheckedBlocks(Options()) {}
  explicit CheckedBlocks(Options options);
  CheckedBlocks(const CheckedBlocks&) = delete;
  CheckedBlocks& operator=(const CheckedBlocks&) = delete;

  // How many bytes to ask the allocator for, so that `size` of them can be used. Nothing for
  // nothing.
  Bytes Wrap(Bytes size, size_t alignment = 64) const;

  // Takes a block of Wrap(size, alignment) bytes that is aligned to `alignment`, a power of two,
  // and returns what the program may use of it: `size` bytes, aligned likewise. nullptr becomes
  // nullptr.
  void* OnAllocate(void* block, Bytes size, size_t alignment = 64);

  // Takes back what OnAllocate returned, and returns the blocks that the allocator is to free now,
  // in most cases others. `size`, when it is known, is compared. nullptr is ignored.
  std::vector<void*> OnFree(void* payload, std::optional<Bytes> size = std::nullopt);

  // The same in two steps, for an allocator that accounts for freed blocks that wait: BeginFree
  // returns the block that is freed, EndFree lets it wait and returns those that have waited.
  void* BeginFree(void* payload, std::optional<Bytes> size);
  std::vector<void*> EndFree(void* payload);

  // Ends the waiting of at least this many bytes, the longest waiting first, or of all there are:
  // blocks that the allocator is to free now.
  std::vector<void*> Drain(Bytes at_least);

  // The size that a live block was asked for with; anything else is a fault.
  Bytes SizeOf(const void* payload) const;

  // True when it is the beginning of a live block.
  bool Owns(const void* payload) const;

  // The live block whose payload `address` lies in, at its start or not.
  std::optional<Extent> Find(const void* address) const;

  // What is known of the block that `address` lies in or beside, live or freed, for a report of the
  // caller's: a line on its size and state, then the stacks. Empty when there is none.
  std::string Describe(const void* address) const;

  // Looks at all red zones and at all that waits, now instead of when it is freed or leaves.
  void CheckAll() const;

  // Bytes that wait, red zones included.
  Bytes quarantined() const;
  int64_t live_blocks() const;
  Counts counts() const;

  // Around fork(), as CachingAllocator's.
  void LockForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Lock(); }
  void UnlockAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.Unlock(); }

 private:
  using State = CheckedBlock::State;
  using Shared = std::shared_ptr<CheckedBlock>;

  // Which function a fault is noticed in.
  enum class Call { kFree, kSizeOf };

  Shared FindOrFault(uintptr_t address, Call call) const;
  Shared Claim(uintptr_t payload, std::optional<Bytes> size, const CallStack& stack);
  size_t FrontOf(size_t alignment) const;
  static uintptr_t BeginOf(const CheckedBlock& block) { return block.payload - block.front; }
  uintptr_t EndOf(const CheckedBlock& block) const;
  Bytes Occupied(const CheckedBlock& block) const {
    return Bytes(static_cast<int64_t>(EndOf(block) - BeginOf(block)));
  }
  const CheckedBlock* FindOverlap(uintptr_t begin, uintptr_t end) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const Shared& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeWaiting(Bytes until, std::vector<Shared>* leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<void*> Release(const std::vector<Shared>& leaving) const;

  const Options options_;
  const size_t zone_;
  mutable Mutex mutex_;
  absl::btree_map<uintptr_t, Shared> blocks_ ABSL_GUARDED_BY(mutex_);  // all but those gone
  std::deque<Shared> waiting_ ABSL_GUARDED_BY(mutex_);                 // the longest first
  Bytes waiting_bytes_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uintptr_t, Shared> gone_ ABSL_GUARDED_BY(mutex_);  // the last few thousand
  std::deque<Shared> gone_order_ ABSL_GUARDED_BY(mutex_);
  int64_t live_ ABSL_GUARDED_BY(mutex_) = 0;
  Bytes live_bytes_ ABSL_GUARDED_BY(mutex_);
  int64_t allocations_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CHECKED_BLOCKS_H_
