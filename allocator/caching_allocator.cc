// SPDX-License-Identifier: Apache-2.0

#include "allocator/caching_allocator.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "allocator/handler_frame.h"
#include "allocator/page_map.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// Beyond any device and address space; sizes up to here can be rounded and added without overflow.
constexpr int64_t kMaxRequest = int64_t{1} << 46;

constexpr int kMaxIdleRounds = 8;

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

class CachingAllocator::Impl {
 public:
  Impl(DeviceMemory* device, const Options& options)
      : history_(options.history_events > 0 ? std::make_unique<HistoryRing>(options.history_events)
                                            : nullptr),
        ledger_(device, options.budget, history_.get()),
        streams_(options.streams),
        capacity_(std::min(device->capacity().count(), kMaxRequest)),
        arenas_([this, limits = options.limits](StreamId stream) {
          return std::make_unique<Arena>(&ledger_, &pages_, streams_, stream, limits);
        }) {
    if (options.planned) arenas_.main().StartPlanning();
  }

  absl::StatusOr<void*> Allocate(Bytes size, const Request& request, OutOfMemory* details);
  void Free(void* pointer, Bytes asked);
  bool RecordUse(const void* address, StreamId stream);
  Bytes SizeOf(void* pointer) const;
  std::optional<BlockInfo> Find(const void* pointer) const;
  bool Owns(const void* pointer) const;
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

  void* TryAllocate(Arena* arena, Bytes size, const Request& request, Shortage* shortage);
  bool ReclaimElsewhere(const Arena* arena, const Shortage& shortage);
  bool WaitAndReclaim(const Shortage& shortage, bool only_if_enough);
  bool CallHandler(Bytes asked, const Shortage& shortage);
  absl::StatusOr<void*> AllocateHard(Arena* arena, Bytes size, const Request& request,
                                     Shortage shortage, OutOfMemory* details);
  absl::Status Fail(Bytes asked, const Shortage& shortage, OutOfMemory* details);
  int64_t CountFrees() const;
  Block* FindLarge(uintptr_t address) const;
  static Arena& ArenaOf(const Block* block) { return Arena::Of(block); }
  static Arena& ArenaOf(const SmallCache::Slab* slab) {
    return Arena::Of(SmallCache::ChunkOf(slab));
  }

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

absl::StatusOr<void*> CachingAllocator::Impl::Allocate(Bytes size, const Request& request,
                                                       OutOfMemory* details) {
  if (size == Bytes(0)) return nullptr;
  if (size < Bytes(0)) return absl::InvalidArgumentError("negative size");
  Arena* arena = arenas_.Find(request.stream, request.pool);
  if (arena == nullptr) return absl::FailedPreconditionError("the pool was destroyed");
  Shortage shortage;
  void* block = TryAllocate(arena, size, request, &shortage);
  if (block == nullptr) {
    const absl::StatusOr<void*> hard = AllocateHard(arena, size, request, shortage, details);
    if (!hard.ok()) return hard;
    block = *hard;
  }
  ledger_.Remember(HistoryAction::kAlloc, AddressOf(block), size.count(), request.stream);
  return block;
}

void* CachingAllocator::Impl::TryAllocate(Arena* arena, Bytes size, const Request& request,
                                          Shortage* shortage) {
  if (size.count() <= static_cast<int64_t>(SmallCache::kMaxSize)) {
    return arena->AllocateSmall(size.count(), shortage);
  }
  const int64_t most = std::min(ledger_.budget(), capacity_);
  if (size.count() > most) {
    *shortage = {.bytes = size.count() - most, .device_exhausted = size.count() > capacity_};
    return nullptr;
  }
  const size_t rounded = (size.count() + 63) / 64 * 64;
  return arena->Allocate(rounded, request.stays ? Heap::End::kHigh : Heap::End::kLow, size.count(),
                         shortage);
}

// What other arenas have cached goes back to the device, as far as that needs no waiting.
bool CachingAllocator::Impl::ReclaimElsewhere(const Arena* arena, const Shortage& shortage) {
  int64_t freed = 0;
  for (Arena* other : arenas_.All()) {
    if (other == arena || freed >= shortage.bytes) continue;
    freed += other->GiveBack(shortage.bytes - freed, /*wait=*/false);
  }
  return freed > 0;
}

// The same by waiting for the device; with `only_if_enough` only where that can cover the shortage.
bool CachingAllocator::Impl::WaitAndReclaim(const Shortage& shortage, bool only_if_enough) {
  if (streams_ == nullptr) return false;
  const std::vector<Arena*> arenas = arenas_.All();
  int64_t waitable = 0;
  for (const Arena* arena : arenas) waitable += arena->CountWaitable();
  if (waitable == 0 || (only_if_enough && waitable < shortage.bytes)) return false;
  Ledger::Note(&waits_);
  int64_t freed = 0;
  bool settled = false;
  for (Arena* arena : arenas) {
    settled |= arena->Settle(/*wait=*/true);
    if (freed < shortage.bytes) freed += arena->GiveBack(shortage.bytes - freed, /*wait=*/true);
  }
  return settled || freed > 0;
}

// What did not fit in at first: other arenas' caches, waiting, the pressure handler, in this order.
absl::StatusOr<void*> CachingAllocator::Impl::AllocateHard(Arena* arena, Bytes size,
                                                           const Request& request,
                                                           Shortage shortage,
                                                           OutOfMemory* details) {
  if (size.count() > std::min(ledger_.budget(), capacity_)) {  // nothing can help
    return Fail(size, shortage, details);
  }
  const auto retry = [&] { return TryAllocate(arena, size, request, &shortage); };
  int64_t frees = -1;
  int idle_rounds = 0;
  for (bool again = true;;) {
    if (ReclaimElsewhere(arena, shortage)) {
      if (void* block = retry()) return block;
    }
    if (WaitAndReclaim(shortage, /*only_if_enough=*/again)) {
      if (void* block = retry()) return block;
    }
    if (!again || HandlerFrame::Contains(this)) break;
    const int64_t frees_now = CountFrees();
    idle_rounds = frees_now == frees ? idle_rounds + 1 : 0;
    frees = frees_now;
    if (idle_rounds == kMaxIdleRounds) break;
    // When it has nothing more, one last look: another thread may have freed something meanwhile.
    again = CallHandler(size, shortage);
    if (void* block = retry()) return block;
  }
  return Fail(size, shortage, details);
}

bool CachingAllocator::Impl::CallHandler(Bytes asked, const Shortage& shortage) {
  std::shared_ptr<const PressureHandler> handler;
  {
    std::lock_guard<std::mutex> lock(handler_mutex_);
    handler = handler_;
  }
  if (handler == nullptr) return false;
  const MemoryPressure pressure{.requested = asked,
                                .shortfall = Bytes(std::max<int64_t>(shortage.bytes, 1)),
                                .needs_contiguous = shortage.needs_contiguous};
  Ledger::Note(&pressure_calls_);
  HandlerFrame frame(this);
  return (*handler)(pressure);
}

absl::Status CachingAllocator::Impl::Fail(Bytes asked, const Shortage& shortage,
                                          OutOfMemory* details) {
  Ledger::Note(&failures_);
  const AllocatorStats stats = Stats();
  ledger_.Remember(HistoryAction::kOom,
                   static_cast<uintptr_t>(std::max<int64_t>(ledger_.room(), 0)), asked.count(),
                   kDefaultStream);
  OutOfMemory numbers;
  numbers.asked = asked;
  numbers.budget = stats.budget;
  numbers.device_capacity = ledger_.device().capacity();
  numbers.held = stats.held;
  numbers.live = stats.live;
  numbers.cached = stats.cached + stats.awaiting;
  numbers.largest_free_range = LargestFreeRange();
  numbers.device_exhausted = shortage.device_exhausted;
  numbers.needs_contiguous = shortage.needs_contiguous;
  if (details != nullptr) *details = numbers;
  return absl::ResourceExhaustedError(FormatOutOfMemory(numbers));
}

// The block that a page's word stands for, if it starts there; live or not.
Block* CachingAllocator::Impl::FindLarge(uintptr_t address) const {
  const uintptr_t word = pages_.Get(address);
  return word == 0 || SmallCache::SlabOf(word) != nullptr ? nullptr
                                                          : reinterpret_cast<Block*>(word);
}

void CachingAllocator::Impl::Free(void* pointer, Bytes asked) {
  if (pointer == nullptr) return;
  const uintptr_t address = AddressOf(pointer);
  if (SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    ArenaOf(slab).FreeSmall(slab, address, asked.count());
    return;
  }
  Block* block = FindLarge(address);
  EBB_CHECK(block != nullptr) << "free of " << pointer
                              << ": freed twice, inside a block, or not allocated here";
  ArenaOf(block).FreeLarge(block, address, asked.count());
}

Bytes CachingAllocator::Impl::SizeOf(void* pointer) const {
  const uintptr_t address = AddressOf(pointer);
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    EBB_CHECK(SmallCache::IsLive(slab, address)) << "size of " << pointer << ": not a live block";
    return Bytes(static_cast<int64_t>(SmallCache::ObjectSize(slab)));
  }
  // Without the lock: neither the word nor a live block's ends change until it is freed.
  const Block* block = FindLarge(address);
  EBB_CHECK(block != nullptr && block->begin == address)
      << "size of " << pointer << ": not a live block";
  return Bytes(static_cast<int64_t>(block->size()));
}

std::optional<CachingAllocator::BlockInfo> CachingAllocator::Impl::Find(const void* pointer) const {
  const uintptr_t address = AddressOf(pointer);
  const auto bytes = [](size_t size) { return Bytes(static_cast<int64_t>(size)); };
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    const uintptr_t start = SmallCache::StartOf(slab, address);
    if (!SmallCache::IsLive(slab, start)) return std::nullopt;
    const Arena& arena = ArenaOf(slab);
    return BlockInfo{reinterpret_cast<void*>(start), bytes(SmallCache::ObjectSize(slab)),
                     bytes(SmallCache::AskedSize(slab, start)), arena.stream(), arena.pool()};
  }
  constexpr auto kReach = static_cast<uintptr_t>(kMaxRequest);
  uintptr_t word = pages_.FindAtOrBefore(address, kReach);
  if (word != 0 && SmallCache::SlabOf(word) == nullptr &&
      reinterpret_cast<const Block*>(word)->begin > address) {
    // The block that starts in the address's page starts behind it.
    constexpr uintptr_t kInPage = (uintptr_t{1} << PageMap::kPageBits) - 1;
    word = pages_.FindAtOrBefore((address & ~kInPage) - 1, kReach);
  }
  if (word == 0 || SmallCache::SlabOf(word) != nullptr) return std::nullopt;
  const auto* block = reinterpret_cast<const Block*>(word);
  const Arena& arena = ArenaOf(block);
  std::lock_guard<std::mutex> lock(arena.mutex());
  if (address < block->begin || address >= block->end) return std::nullopt;
  if (!arena.IsLiveLocked(block, block->begin)) return std::nullopt;
  return BlockInfo{reinterpret_cast<void*>(block->begin), bytes(block->size()), Bytes(block->asked),
                   arena.stream(), arena.pool()};
}

bool CachingAllocator::Impl::RecordUse(const void* address, StreamId stream) {
  const std::optional<BlockInfo> info = Find(address);
  if (!info.has_value()) return false;
  const uintptr_t begin = AddressOf(info->begin);
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(begin))) {
    ArenaOf(slab).AddUse(begin, stream);
  } else {
    ArenaOf(FindLarge(begin)).AddUse(begin, stream);
  }
  return true;
}

bool CachingAllocator::Impl::Owns(const void* pointer) const {
  const uintptr_t address = AddressOf(pointer);
  const uintptr_t word = pages_.Get(address);
  if (word == 0) return false;  // most foreign pointers end here, without a lock
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(word)) {
    return SmallCache::IsLive(slab, address);
  }
  const auto* block = reinterpret_cast<const Block*>(word);
  return ArenaOf(block).IsLive(block, address);
}

absl::Status CachingAllocator::Impl::DestroyPool(PoolId pool) {
  if (pool == kSharedPool || !arenas_.PoolExists(pool)) {
    return absl::FailedPreconditionError("there is no such pool");
  }
  for (Arena* arena : arenas_.DestroyPool(pool)) {
    arena->Trim(INT64_MAX, /*wait=*/false, /*small_too=*/true);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> CachingAllocator::Impl::TrimPool(PoolId pool) {
  if (!arenas_.PoolExists(pool)) return absl::FailedPreconditionError("there is no such pool");
  int64_t freed = 0;
  for (Arena* arena : arenas_.OfPool(pool)) {
    freed += arena->Trim(INT64_MAX, /*wait=*/true, /*small_too=*/true);
  }
  return Bytes(freed);
}

void CachingAllocator::Impl::Settle() {
  if (streams_ == nullptr) return;
  for (Arena* arena : arenas_.All()) arena->Settle(/*wait=*/false);
}

// The locks of all arenas, for looking at all of them at one moment.
class CachingAllocator::Impl::AllLocks {
 public:
  explicit AllLocks(const Impl& impl) : arenas_(impl.arenas_.All()) {
    for (const Arena* arena : arenas_) locks_.emplace_back(arena->mutex());
  }
  const std::vector<Arena*>& arenas() const { return arenas_; }

 private:
  const std::vector<Arena*> arenas_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

int64_t CachingAllocator::Impl::CountFrees() const {
  int64_t frees = 0;
  for (const Arena* arena : arenas_.All()) frees += arena->CountFrees();
  return frees;
}

AllocatorStats CachingAllocator::Impl::Stats() const {
  AllocatorStats stats;
  const AllLocks locks(*this);
  Arena::Counts counts;
  for (const Arena* arena : locks.arenas()) counts += arena->CountLocked();
  stats.budget = Budget();
  stats.held = Bytes(ledger_.held().now());
  stats.live = Bytes(counts.live);
  stats.asked = Bytes(counts.asked);
  stats.rounding = stats.live - stats.asked;
  stats.awaiting = Bytes(counts.awaiting);
  stats.cached = stats.held - stats.live - stats.awaiting;
  stats.reserved = Bytes(ledger_.reserved.load());
  stats.peak_held = Bytes(ledger_.held().peak());
  stats.peak_live = std::max(Bytes(ledger_.live.peak()), stats.live);
  stats.peak_awaiting = Bytes(ledger_.awaiting.peak());
  stats.live_blocks = counts.live_blocks;
  stats.allocations = counts.allocations;
  stats.frees = counts.frees;
  stats.planned = counts.planned;
  stats.failures = failures_;
  stats.device_commits = ledger_.commits;
  stats.device_decommits = ledger_.decommits;
  stats.device_moves = ledger_.moves;
  stats.pressure_calls = pressure_calls_;
  stats.waits = waits_;
  stats.arenas = static_cast<int64_t>(locks.arenas().size());
  return stats;
}

Snapshot CachingAllocator::Impl::TakeSnapshot() const {
  Snapshot snapshot;
  snapshot.settings = {{"budget", FormatBytes(Budget())}};
  {
    const AllLocks locks(*this);
    for (const Arena* arena : locks.arenas()) {
      arena->small().LockShards();
      arena->AppendPictureLocked(&snapshot.segments);
      arena->small().UnlockShards();
    }
  }
  if (history_ != nullptr) {
    history_->Add(HistoryAction::kSnapshot, 0, Bytes(0), kDefaultStream);
    snapshot.history = history_->Read();
  }
  return snapshot;
}

void CachingAllocator::Impl::ResetPeaks() { ledger_.RestartPeaks(); }

void CachingAllocator::Impl::SetPressureHandler(PressureHandler handler) {
  std::shared_ptr<const PressureHandler> fresh;
  if (handler) fresh = std::make_shared<const PressureHandler>(std::move(handler));
  std::lock_guard<std::mutex> lock(handler_mutex_);
  handler_.swap(fresh);  // the old one goes with `fresh`, or with its last call
}

Bytes CachingAllocator::Impl::ReleaseCached(Bytes at_least) {
  int64_t freed = 0;
  for (const bool small_too : {false, true}) {
    for (Arena* arena : arenas_.All()) {
      if (freed >= at_least.count()) break;
      if (arena->keeps_cache()) continue;
      freed += arena->Trim(at_least.count() - freed, /*wait=*/true, small_too);
    }
  }
  if (freed < at_least.count()) ledger_.ReleaseRetained();
  return Bytes(freed);
}

Bytes CachingAllocator::Impl::LargestFreeRange() const {
  Bytes largest;
  for (const Arena* arena : arenas_.All()) largest = std::max(largest, arena->LargestFree());
  return largest;
}

void CachingAllocator::Impl::SetBudget(Bytes budget) {
  ledger_.set_budget(budget.count());
  if (ledger_.room() < 0) ReleaseCached(Bytes(-ledger_.room()));
}

void CachingAllocator::Impl::CheckInvariants() const {
  const AllLocks locks(*this);
  int64_t committed = 0;
  for (const Arena* arena : locks.arenas()) committed += arena->CheckLocked();
  EBB_CHECK(committed == ledger_.held().now())
      << committed << " committed, " << ledger_.held().now() << " held";
}

void CachingAllocator::Impl::LockForFork() {
  handler_mutex_.lock();
  arenas_.mutex().lock();
  arenas_.ForEachLocked([](const Arena& arena) {
    arena.mutex().lock();
    arena.small().LockShards();
  });
}

void CachingAllocator::Impl::UnlockAfterFork() {
  arenas_.ForEachLocked([](const Arena& arena) {
    arena.small().UnlockShards();
    arena.mutex().unlock();
  });
  arenas_.mutex().unlock();
  handler_mutex_.unlock();
}

CachingAllocator::CachingAllocator(DeviceMemory* device, Options options)
    : impl_(std::make_unique<Impl>(device, options)) {}

CachingAllocator::~CachingAllocator() = default;

absl::StatusOr<void*> CachingAllocator::Allocate(Bytes size, const Request& request,
                                                 OutOfMemory* details) {
  return impl_->Allocate(size, request, details);
}

void CachingAllocator::Free(void* block, Bytes asked) { impl_->Free(block, asked); }

bool CachingAllocator::RecordUse(const void* address, StreamId stream) {
  return impl_->RecordUse(address, stream);
}

Bytes CachingAllocator::SizeOf(void* block) const { return impl_->SizeOf(block); }

std::optional<CachingAllocator::BlockInfo> CachingAllocator::Find(const void* address) const {
  return impl_->Find(address);
}

bool CachingAllocator::Owns(const void* address) const { return impl_->Owns(address); }
PoolId CachingAllocator::CreatePool() { return impl_->CreatePool(); }
absl::Status CachingAllocator::DestroyPool(PoolId pool) { return impl_->DestroyPool(pool); }
absl::StatusOr<Bytes> CachingAllocator::TrimPool(PoolId pool) { return impl_->TrimPool(pool); }
void CachingAllocator::Settle() { impl_->Settle(); }
AllocatorStats CachingAllocator::stats() const { return impl_->Stats(); }
Snapshot CachingAllocator::TakeSnapshot() const { return impl_->TakeSnapshot(); }
HistoryRing* CachingAllocator::history() const { return impl_->history(); }
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
