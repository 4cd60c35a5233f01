// SPDX-License-Identifier: Apache-2.0

#include "allocator/caching_allocator.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "allocator/heap.h"
#include "allocator/page_map.h"
#include "allocator/small_cache.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// Blocks below this size have a heap of their own, so that small ones that live long do not sit
// between large ones and hold a granule each there.
constexpr size_t kSmallHeapBelow = size_t{256} << 10;

// Beyond any device and address space; sizes up to here can be rounded and added without overflow.
constexpr int64_t kMaxRequest = int64_t{1} << 46;

constexpr int kMaxIdleRounds = 8;

// The handlers that run on this thread, innermost first.
struct HandlerFrame {
  explicit HandlerFrame(const void* allocator) : owner(allocator), outer(innermost) {
    innermost = this;
  }
  ~HandlerFrame() { innermost = outer; }
  HandlerFrame(const HandlerFrame&) = delete;
  HandlerFrame& operator=(const HandlerFrame&) = delete;

  static bool Contains(const void* allocator) {
    for (const HandlerFrame* f = innermost; f != nullptr; f = f->outer) {
      if (f->owner == allocator) return true;
    }
    return false;
  }

  const void* const owner;
  HandlerFrame* const outer;
  static thread_local HandlerFrame* innermost;
};

thread_local HandlerFrame* HandlerFrame::innermost = nullptr;

}  // namespace

class CachingAllocator::Impl {
 public:
  Impl(DeviceMemory* device, const Options& options)
      : ledger_{.device = device, .budget = options.budget.count()},
        partial_(device->supports_partial_decommit()),
        capacity_(std::min(device->capacity().count(), kMaxRequest)),
        heaps_{Heap(&ledger_), Heap(&ledger_)},
        small_(&pages_) {}

  absl::StatusOr<void*> Allocate(Bytes size, OutOfMemory* details);
  void Free(void* pointer);
  Bytes SizeOf(void* pointer) const;
  bool Owns(const void* pointer) const;
  AllocatorStats Stats() const;
  void ResetPeaks();
  void SetPressureHandler(PressureHandler handler);
  Bytes ReleaseCached(Bytes at_least);
  Bytes LargestFreeRange() const;
  void SetBudget(Bytes budget);
  Bytes Budget() const;
  void CheckInvariants() const;
  void LockForFork();
  void UnlockAfterFork();

 private:
  // Why a request did not fit.
  struct Shortage {
    int64_t bytes = 0;
    bool device_exhausted = false;
    bool needs_contiguous = false;
  };

  Heap& HeapFor(size_t size) { return heaps_[size < kSmallHeapBelow ? 0 : 1]; }
  absl::StatusOr<void*> AllocateSmall(Bytes size, OutOfMemory* details);
  absl::StatusOr<Block*> Obtain(size_t size, size_t alignment, Bytes asked,
                                std::unique_lock<std::mutex>* lock, OutOfMemory* details);
  Block* TryObtain(size_t size, size_t alignment, Shortage* shortage);
  Block* TryPartial(Heap* heap, size_t size, size_t alignment, Shortage* shortage);
  Block* CarveOrReserve(Heap* heap, size_t size, size_t alignment, Shortage* shortage);
  bool CommitInBudget(Heap* heap, Block* block, Shortage* shortage);
  Block* TryWhole(Heap* heap, size_t size, size_t alignment, Shortage* shortage);
  bool CallHandler(Bytes asked, const Shortage& shortage, std::unique_lock<std::mutex>* lock);
  absl::Status Fail(Bytes asked, const Shortage& shortage, OutOfMemory* details);
  int64_t GiveBack(int64_t wanted);
  void EnforceBudget();
  bool FlushSmall();
  void ReleaseChunks(const std::vector<Block*>& chunks);
  int64_t CountFrees() const { return large_frees_ + small_.Count().frees; }
  void NotePeakLive(int64_t live) { peak_live_ = std::max(peak_live_, live); }
  Block* FindLarge(uintptr_t address) const;

  mutable std::mutex mutex_;  // guards all that changes, but for the shards of small_
  HeapLedger ledger_;
  const bool partial_;
  const int64_t capacity_;  // asked for once: it may be a system call
  PageMap pages_;  // words: a Slab with bit 0 set, or the large Block that starts in the page
  Heap heaps_[2];
  SmallCache small_;
  std::shared_ptr<const PressureHandler> handler_;
  int64_t large_live_ = 0;
  int64_t large_allocations_ = 0;
  int64_t large_frees_ = 0;
  int64_t peak_live_ = 0;
  int64_t failures_ = 0;
  int64_t pressure_calls_ = 0;
};

absl::StatusOr<void*> CachingAllocator::Impl::Allocate(Bytes size, OutOfMemory* details) {
  if (size == Bytes(0)) return nullptr;
  if (size < Bytes(0)) return absl::InvalidArgumentError("negative size");
  if (size.count() <= static_cast<int64_t>(SmallCache::kMaxSize)) {
    return AllocateSmall(size, details);
  }
  const size_t rounded = (std::min(size.count(), kMaxRequest + 1) + 63) / 64 * 64;
  std::unique_lock<std::mutex> lock(mutex_);
  absl::StatusOr<Block*> block = Obtain(rounded, Heap::kAlignment, size, &lock, details);
  if (!block.ok()) return std::move(block).status();
  const uintptr_t address = (*block)->begin;
  pages_.Set(address, reinterpret_cast<uintptr_t>(*block));
  ++large_allocations_;
  large_live_ += rounded;
  NotePeakLive(large_live_ + small_.approximate_live());
  return reinterpret_cast<void*>(address);
}

absl::StatusOr<void*> CachingAllocator::Impl::AllocateSmall(Bytes size, OutOfMemory* details) {
  const int size_class = SmallCache::ClassOf(size.count());
  uintptr_t address = small_.Pop(size_class);
  if (address != 0) return reinterpret_cast<void*>(address);
  std::unique_lock<std::mutex> lock(mutex_);
  while ((address = small_.TakeFromSlabs(size_class)) == 0) {
    absl::StatusOr<Block*> chunk =
        Obtain(SmallCache::kChunkSize, SmallCache::kChunkSize, size, &lock, details);
    if (!chunk.ok()) return std::move(chunk).status();
    small_.AddChunk(size_class, *chunk);
  }
  NotePeakLive(large_live_ + small_.approximate_live());
  return reinterpret_cast<void*>(address);
}

// Gets a live, committed block, if need be by giving cached memory back and by calling the handler,
// for which the lock is released.
absl::StatusOr<Block*> CachingAllocator::Impl::Obtain(size_t size, size_t alignment, Bytes asked,
                                                      std::unique_lock<std::mutex>* lock,
                                                      OutOfMemory* details) {
  Shortage shortage;
  if (static_cast<int64_t>(size) > std::min(ledger_.budget, capacity_)) {  // nothing can help
    shortage.device_exhausted = static_cast<int64_t>(size) > capacity_;
    return Fail(asked, shortage, details);
  }
  int64_t frees = -1;
  int idle_rounds = 0;
  for (bool again = true;;) {
    shortage = Shortage();
    Block* block = TryObtain(size, alignment, &shortage);
    if (block == nullptr && FlushSmall()) block = TryObtain(size, alignment, &shortage);
    if (block != nullptr) return block;
    if (!again || handler_ == nullptr || HandlerFrame::Contains(this)) break;
    const int64_t frees_now = CountFrees();
    idle_rounds = frees_now == frees ? idle_rounds + 1 : 0;
    frees = frees_now;
    if (idle_rounds == kMaxIdleRounds) break;
    // When it has nothing more, one last look: another thread may have freed something meanwhile.
    again = CallHandler(asked, shortage, lock);
  }
  return Fail(asked, shortage, details);
}

bool CachingAllocator::Impl::CallHandler(Bytes asked, const Shortage& shortage,
                                         std::unique_lock<std::mutex>* lock) {
  const std::shared_ptr<const PressureHandler> handler = handler_;
  const MemoryPressure pressure{.requested = asked,
                                .shortfall = Bytes(std::max<int64_t>(shortage.bytes, 1)),
                                .needs_contiguous = shortage.needs_contiguous};
  ++pressure_calls_;
  lock->unlock();
  bool again = false;
  {
    HandlerFrame frame(this);
    again = (*handler)(pressure);
  }
  lock->lock();
  return again;
}

absl::Status CachingAllocator::Impl::Fail(Bytes asked, const Shortage& shortage,
                                          OutOfMemory* details) {
  ++failures_;
  OutOfMemory numbers;
  numbers.asked = asked;
  numbers.budget = Bytes(ledger_.budget);
  numbers.device_capacity = ledger_.device->capacity();
  numbers.held = Bytes(ledger_.held);
  numbers.live = Bytes(large_live_ + small_.Count().live_bytes);
  numbers.cached = numbers.held - numbers.live;
  numbers.largest_free_range = Bytes(std::max(heaps_[0].largest_free(), heaps_[1].largest_free()));
  numbers.device_exhausted = shortage.device_exhausted;
  numbers.needs_contiguous = shortage.needs_contiguous;
  if (details != nullptr) *details = numbers;
  return absl::ResourceExhaustedError(FormatOutOfMemory(numbers));
}

Block* CachingAllocator::Impl::TryObtain(size_t size, size_t alignment, Shortage* shortage) {
  Heap* heap = &HeapFor(size);
  return partial_ ? TryPartial(heap, size, alignment, shortage)
                  : TryWhole(heap, size, alignment, shortage);
}

Block* CachingAllocator::Impl::TryPartial(Heap* heap, size_t size, size_t alignment,
                                          Shortage* shortage) {
  Block* block = CarveOrReserve(heap, size, alignment, shortage);
  if (block == nullptr) return nullptr;
  if (CommitInBudget(heap, block, shortage)) return block;
  heap->Abandon(block);
  const size_t granule = ledger_.device->granularity().count();
  if (shortage->device_exhausted || alignment >= granule) return nullptr;
  // Now all of the cache has gone, and the place that was best with it may touch one granule more
  // than the size needs. A place that starts with a granule does not.
  Shortage aligned;
  block = CarveOrReserve(heap, size, granule, &aligned);
  if (block == nullptr) return nullptr;
  if (CommitInBudget(heap, block, &aligned)) return block;
  heap->Abandon(block);
  if (!aligned.device_exhausted) shortage->bytes = std::min(shortage->bytes, aligned.bytes);
  return nullptr;
}

Block* CachingAllocator::Impl::CarveOrReserve(Heap* heap, size_t size, size_t alignment,
                                              Shortage* shortage) {
  Block* block = heap->Carve(size, alignment);
  if (block != nullptr) return block;
  const size_t padded = size + alignment - Heap::kAlignment;
  if (!heap->AddSegment(padded, false).ok() && !heap->AddSegment(padded, true).ok()) {
    GiveBack(INT64_MAX);  // unreserves empty segments: this is about addresses
    if (!heap->AddSegment(padded, true).ok()) {
      *shortage = {.bytes = static_cast<int64_t>(size), .device_exhausted = true};
      return nullptr;
    }
  }
  block = heap->Carve(size, alignment);
  EBB_CHECK(block != nullptr) << "a new segment must be large enough";
  return block;
}

bool CachingAllocator::Impl::CommitInBudget(Heap* heap, Block* block, Shortage* shortage) {
  int64_t missing = heap->UncommittedBytes(block);
  if (missing == 0) return true;
  // The block is out of the free ones, so what is given back is never what it will use.
  GiveBack(ledger_.held + missing - ledger_.budget);
  if (ledger_.held + missing > ledger_.budget) {
    shortage->bytes = ledger_.held + missing - ledger_.budget;
    return false;
  }
  if (heap->CommitBlock(block).ok()) return true;
  missing = heap->UncommittedBytes(block);
  if (GiveBack(missing) > 0 && ledger_.held + missing <= ledger_.budget &&
      heap->CommitBlock(block).ok()) {
    return true;
  }
  *shortage = {.bytes = heap->UncommittedBytes(block), .device_exhausted = true};
  return false;
}

Block* CachingAllocator::Impl::TryWhole(Heap* heap, size_t size, size_t alignment,
                                        Shortage* shortage) {
  Block* block = heap->Carve(size, alignment);
  if (block != nullptr) return block;
  const size_t padded = size + alignment - Heap::kAlignment;
  const auto roomy = static_cast<int64_t>(heap->SegmentSize(padded, false));
  if (ledger_.held + roomy <= ledger_.budget && heap->AddSegment(padded, false).ok()) {
    return heap->Carve(size, alignment);
  }
  const auto exact = static_cast<int64_t>(heap->SegmentSize(padded, true));
  GiveBack(ledger_.held + exact - ledger_.budget);
  const int64_t over = ledger_.held + exact - ledger_.budget;
  if (over <= 0) {
    absl::Status status = heap->AddSegment(padded, true);
    if (!status.ok() && GiveBack(exact) > 0) status = heap->AddSegment(padded, true);
    if (status.ok()) return heap->Carve(size, alignment);
    shortage->device_exhausted = true;
  }
  const int64_t cached = ledger_.held - large_live_ - small_.approximate_live();
  shortage->bytes = over > 0 ? over : exact;
  shortage->needs_contiguous = cached >= static_cast<int64_t>(size);
  return nullptr;
}

// The large heap first: its blocks give most for a call of the device.
int64_t CachingAllocator::Impl::GiveBack(int64_t wanted) {
  if (wanted <= 0) return 0;
  const int64_t large = heaps_[1].GiveBack(wanted);
  return large + (large < wanted ? heaps_[0].GiveBack(wanted - large) : 0);
}

void CachingAllocator::Impl::ReleaseChunks(const std::vector<Block*>& chunks) {
  for (Block* chunk : chunks) HeapFor(SmallCache::kChunkSize).Release(chunk);
}

// Returns true when that freed any memory of the heap.
bool CachingAllocator::Impl::FlushSmall() {
  std::vector<Block*> chunks;
  small_.Flush(&chunks);
  ReleaseChunks(chunks);
  return !chunks.empty();
}

Block* CachingAllocator::Impl::FindLarge(uintptr_t address) const {
  const uintptr_t word = pages_.Get(address);
  if (word == 0 || (word & 1) != 0) return nullptr;
  Block* block = reinterpret_cast<Block*>(word);
  return block->begin == address ? block : nullptr;
}

void CachingAllocator::Impl::Free(void* pointer) {
  if (pointer == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    uintptr_t overflow[SmallCache::kMaxBatch];
    const size_t count = small_.Push(slab, address, overflow);
    if (count == 0) return;
    std::vector<Block*> chunks;
    std::lock_guard<std::mutex> lock(mutex_);
    small_.ReturnObjects(overflow, count, &chunks);
    ReleaseChunks(chunks);
    EnforceBudget();
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Block* block = FindLarge(address);
  EBB_CHECK(block != nullptr) << "free of " << pointer
                              << ": freed twice, inside a block, or not allocated here";
  pages_.Set(address, 0);
  ++large_frees_;
  large_live_ -= block->size();
  HeapFor(block->size()).Release(block);
  EnforceBudget();
}

// After the budget was lowered below what was held, each free brings held nearer to it.
void CachingAllocator::Impl::EnforceBudget() {
  if (ledger_.held > ledger_.budget) GiveBack(ledger_.held - ledger_.budget);
}

Bytes CachingAllocator::Impl::SizeOf(void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    EBB_CHECK(SmallCache::IsLive(slab, address)) << "size of " << pointer << ": not a live block";
    return Bytes(static_cast<int64_t>(SmallCache::ObjectSize(slab)));
  }
  // Without the lock: neither the word nor a live block's ends change until it is freed.
  const Block* block = FindLarge(address);
  EBB_CHECK(block != nullptr) << "size of " << pointer << ": not a live block";
  return Bytes(static_cast<int64_t>(block->size()));
}

bool CachingAllocator::Impl::Owns(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (pages_.Get(address) == 0) return false;  // most foreign pointers end here, without the lock
  std::lock_guard<std::mutex> lock(mutex_);
  const SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address));
  return slab != nullptr ? SmallCache::IsLive(slab, address) : FindLarge(address) != nullptr;
}

AllocatorStats CachingAllocator::Impl::Stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const SmallCache::Counts small = small_.Count();
  AllocatorStats stats;
  stats.budget = Bytes(ledger_.budget);
  stats.held = Bytes(ledger_.held);
  stats.live = Bytes(large_live_ + small.live_bytes);
  stats.cached = stats.held - stats.live;
  stats.reserved = Bytes(ledger_.reserved);
  stats.peak_held = Bytes(ledger_.peak_held);
  stats.peak_live = std::max(Bytes(peak_live_), stats.live);
  stats.allocations = large_allocations_ + small.allocations;
  stats.frees = large_frees_ + small.frees;
  stats.live_blocks = stats.allocations - stats.frees;
  stats.failures = failures_;
  stats.device_commits = ledger_.device_commits;
  stats.device_decommits = ledger_.device_decommits;
  stats.pressure_calls = pressure_calls_;
  return stats;
}

void CachingAllocator::Impl::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  ledger_.peak_held = ledger_.held;
  peak_live_ = large_live_ + small_.Count().live_bytes;
}

void CachingAllocator::Impl::SetPressureHandler(PressureHandler handler) {
  std::shared_ptr<const PressureHandler> fresh;
  if (handler) fresh = std::make_shared<const PressureHandler>(std::move(handler));
  std::lock_guard<std::mutex> lock(mutex_);
  handler_.swap(fresh);  // the old one goes with `fresh`, after the lock, or with its last call
}

Bytes CachingAllocator::Impl::ReleaseCached(Bytes at_least) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t freed = GiveBack(at_least.count());
  if (freed < at_least.count() && FlushSmall()) freed += GiveBack(at_least.count() - freed);
  return Bytes(freed);
}

Bytes CachingAllocator::Impl::LargestFreeRange() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(static_cast<int64_t>(std::max(heaps_[0].largest_free(), heaps_[1].largest_free())));
}

void CachingAllocator::Impl::SetBudget(Bytes budget) {
  std::lock_guard<std::mutex> lock(mutex_);
  ledger_.budget = budget.count();
  EnforceBudget();
  if (ledger_.held > ledger_.budget && FlushSmall()) EnforceBudget();
}

Bytes CachingAllocator::Impl::Budget() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(ledger_.budget);
}

void CachingAllocator::Impl::CheckInvariants() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t committed = 0;
  for (const Heap& heap : heaps_) {
    heap.CheckInvariants();
    committed += heap.CountCommitted();
  }
  EBB_CHECK(committed == ledger_.held) << committed << " committed, " << ledger_.held << " held";
  EBB_CHECK(ledger_.held <= ledger_.peak_held);
}

void CachingAllocator::Impl::LockForFork() {
  mutex_.lock();
  small_.LockShards();
}

void CachingAllocator::Impl::UnlockAfterFork() {
  small_.UnlockShards();
  mutex_.unlock();
}

CachingAllocator::CachingAllocator(DeviceMemory* device, Options options)
    : impl_(std::make_unique<Impl>(device, options)) {}

CachingAllocator::~CachingAllocator() = default;

absl::StatusOr<void*> CachingAllocator::Allocate(Bytes size, OutOfMemory* details) {
  return impl_->Allocate(size, details);
}

void CachingAllocator::Free(void* block) { impl_->Free(block); }

Bytes CachingAllocator::SizeOf(void* block) const { return impl_->SizeOf(block); }

bool CachingAllocator::Owns(const void* address) const { return impl_->Owns(address); }

AllocatorStats CachingAllocator::stats() const { return impl_->Stats(); }

void CachingAllocator::ResetPeaks() { impl_->ResetPeaks(); }

void CachingAllocator::SetPressureHandler(PressureHandler handler) {
  impl_->SetPressureHandler(std::move(handler));
}

Bytes CachingAllocator::ReleaseCached(Bytes at_least) { return impl_->ReleaseCached(at_least); }

Bytes CachingAllocator::largest_free_range() const { return impl_->LargestFreeRange(); }

void CachingAllocator::set_budget(Bytes budget) { impl_->SetBudget(budget); }

Bytes CachingAllocator::budget() const { return impl_->Budget(); }

void CachingAllocator::CheckInvariants() const { impl_->CheckInvariants(); }

void CachingAllocator::LockForFork() { impl_->LockForFork(); }

void CachingAllocator::UnlockAfterFork() { impl_->UnlockAfterFork(); }

}  // namespace ebbtide
