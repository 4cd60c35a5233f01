// SPDX-License-Identifier: Apache-2.0

#include "allocator/caching_allocator.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "allocator/caching_allocator_impl.h"
#include "base/check.h"
#include "base/log.h"

namespace ebbtide {
namespace {

// The checks that this device allows. Where bytes are out of reach, or a stream may still read them
// when they are freed, nothing may be written into them.
std::unique_ptr<CheckedBlocks> MakeChecks(const DeviceMemory& device,
                                          const CachingAllocator::Options& options) {
  if (!options.check.has_value()) return nullptr;
  CheckedBlocks::Options check = *options.check;
  if (!device.is_host_accessible() || options.streams != nullptr) {
    check.bytes_reachable = false;
    EBB_WARN_ONCE(
        "check: the host cannot look into this device's memory, or not in time: overruns and uses "
        "after free are not found there");
  }
  return std::make_unique<CheckedBlocks>(check);
}

void CheckBudget(Bytes budget) {
  EBB_CHECK(budget >= Bytes(0)) << "a budget of " << budget.count() << " bytes";
}

}  // namespace

CachingAllocator::Impl::Impl(DeviceMemory* device, const Options& options)
    : checks_(MakeChecks(*device, options)),
      history_(options.history_events > 0 ? std::make_unique<HistoryRing>(options.history_events)
                                          : nullptr),
      ledger_(device, options.budget, history_.get()),
      streams_(options.streams),
      capacity_(std::min(device->capacity().count(), kMaxRequest)),
      arenas_([this, limits = options.limits](StreamId stream) {
        return std::make_unique<Arena>(&ledger_, &pages_, streams_, stream, limits);
      }) {
  CheckBudget(options.budget);
  if (options.planned) arenas_.main().StartPlanning();
}

// What was never freed is looked at for the last time.
CachingAllocator::Impl::~Impl() { CheckBlocks(); }

// The block that a page's word stands for, if it starts there; live or not.
Block* CachingAllocator::Impl::FindLarge(uintptr_t address) const {
  const uintptr_t word = pages_.Get(address);
  return word == 0 || SmallCache::SlabOf(word) != nullptr ? nullptr
                                                          : reinterpret_cast<Block*>(word);
}

void CachingAllocator::Impl::Free(void* pointer, Bytes asked) {
  if (pointer == nullptr) return;
  if (checks_ != nullptr) return FreeChecked(pointer, asked);
  FreeBlock(pointer, asked, Arena::AfterFree::kReuse);
}

// Looks for damage; lets the block wait in the quarantine; frees what has waited there.
void CachingAllocator::Impl::FreeChecked(void* payload, Bytes asked) {
  void* block =
      checks_->BeginFree(payload, asked < Bytes(0) ? std::nullopt : std::make_optional(asked));
  FreeBlock(block, Bytes(-1), Arena::AfterFree::kHold);
  EndHolds(checks_->EndFree(payload));
  if (ledger_.room() < 0) EndQuarantine(Bytes::Max());
}

void CachingAllocator::Impl::EndHolds(const std::vector<void*>& blocks) {
  for (void* block : blocks) {
    const uintptr_t word = pages_.Get(AddressOf(block));
    const SmallCache::Slab* slab = SmallCache::SlabOf(word);
    Arena& arena = slab != nullptr ? ArenaOf(slab) : ArenaOf(reinterpret_cast<Block*>(word));
    arena.EndHold(AddressOf(block));
  }
}

void CachingAllocator::Impl::FreeBlock(void* pointer, Bytes asked, Arena::AfterFree after) {
  const uintptr_t address = AddressOf(pointer);
  if (SmallCache::Slab* slab = SmallCache::SlabOf(pages_.Get(address))) {
    ArenaOf(slab).FreeSmall(slab, address, asked.count(), after);
    return;
  }
  Block* block = FindLarge(address);
  EBB_CHECK(block != nullptr) << "free of " << pointer
                              << ": freed twice, inside a block, or not allocated here";
  ArenaOf(block).FreeLarge(block, address, asked.count(), after);
}

Bytes CachingAllocator::Impl::SizeOf(void* pointer) const {
  if (checks_ != nullptr) return checks_->SizeOf(pointer);
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
  if (checks_ == nullptr) return FindBlock(pointer);
  const std::optional<CheckedBlocks::Extent> extent = checks_->Find(pointer);
  if (!extent.has_value()) return std::nullopt;
  std::optional<BlockInfo> info = FindBlock(extent->block);
  if (!info.has_value()) return std::nullopt;
  info->begin = extent->payload;
  info->size = extent->size;
  return info;
}

std::optional<CachingAllocator::BlockInfo> CachingAllocator::Impl::FindBlock(
    const void* pointer) const {
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
  const void* in_block = address;
  if (checks_ != nullptr) {
    const std::optional<CheckedBlocks::Extent> extent = checks_->Find(address);
    if (!extent.has_value()) return false;
    in_block = extent->block;
  }
  const std::optional<BlockInfo> info = FindBlock(in_block);
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
  if (checks_ != nullptr) return checks_->Owns(pointer);
  const uintptr_t address = AddressOf(pointer);
  const uintptr_t word = pages_.Get(address);
  if (word == 0) return false;  // most foreign pointers end here, without a lock
  if (const SmallCache::Slab* slab = SmallCache::SlabOf(word)) {
    return SmallCache::IsLive(slab, address);
  }
  const auto* block = reinterpret_cast<const Block*>(word);
  return ArenaOf(block).IsLive(block, address);
}

std::string CachingAllocator::Impl::Describe(const void* pointer) const {
  if (checks_ != nullptr) return checks_->Describe(pointer);
  const std::optional<BlockInfo> info = FindBlock(pointer);
  if (!info.has_value()) return "";
  return absl::StrFormat("  block %p: %d bytes, live\n", info->begin, info->asked.count());
}

void CachingAllocator::Impl::CheckBlocks() const {
  if (checks_ != nullptr) checks_->CheckAll();
}

absl::Status CachingAllocator::Impl::DestroyPool(PoolId pool) {
  if (pool == kSharedPool || !arenas_.PoolExists(pool)) {
    return absl::FailedPreconditionError("there is no such pool");
  }
  EndQuarantine(Bytes::Max());
  for (Arena* arena : arenas_.DestroyPool(pool)) {
    arena->Trim(INT64_MAX, /*wait=*/false, /*small_too=*/true);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> CachingAllocator::Impl::TrimPool(PoolId pool) {
  if (!arenas_.PoolExists(pool)) return absl::FailedPreconditionError("there is no such pool");
  EndQuarantine(Bytes::Max());
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

void CachingAllocator::Impl::ResetPeaks() {
  const AllLocks locks(*this);
  ledger_.RestartPeaks();
  for (Arena* arena : locks.arenas()) arena->RestartPeaksLocked();
}

void CachingAllocator::Impl::SetPressureHandler(PressureHandler handler) {
  std::shared_ptr<const PressureHandler> fresh;
  if (handler) fresh = std::make_shared<const PressureHandler>(std::move(handler));
  std::lock_guard<std::mutex> lock(handler_mutex_);
  handler_.swap(fresh);  // the old one goes with `fresh`, or with its last call
}

int64_t CachingAllocator::Impl::TrimShared(int64_t at_least) {
  int64_t freed = 0;
  for (const bool small_too : {false, true}) {
    for (Arena* arena : arenas_.All()) {
      if (freed >= at_least) break;
      if (arena->keeps_cache()) continue;
      freed += arena->Trim(at_least - freed, /*wait=*/true, small_too);
    }
  }
  return freed;
}

Bytes CachingAllocator::Impl::ReleaseCached(Bytes at_least) {
  Bytes freed(TrimShared(at_least.count()));
  while (freed < at_least && EndQuarantine(at_least - freed)) {
    freed += Bytes(TrimShared((at_least - freed).count()));
  }
  if (freed < at_least) ledger_.ReleaseRetained();
  return freed;
}

Bytes CachingAllocator::Impl::LargestFreeRange() const {
  Bytes largest;
  for (const Arena* arena : arenas_.All()) largest = std::max(largest, arena->LargestFree());
  return largest;
}

void CachingAllocator::Impl::SetBudget(Bytes budget) {
  CheckBudget(budget);
  ledger_.set_budget(budget.count());
  if (ledger_.room() < 0) ReleaseCached(Bytes(-ledger_.room()));
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
std::string CachingAllocator::Describe(const void* address) const {
  return impl_->Describe(address);
}

void CachingAllocator::CheckBlocks() const { impl_->CheckBlocks(); }
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
