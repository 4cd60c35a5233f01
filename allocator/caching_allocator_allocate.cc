// SPDX-License-Identifier: Apache-2.0
//
// A request's way through the allocator, from the hit to the out-of-memory error.

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/caching_allocator_impl.h"
#include "allocator/handler_frame.h"

namespace ebbtide {
namespace {

constexpr int kMaxIdleRounds = 8;
constexpr auto kMaxSmall = static_cast<int64_t>(SmallCache::kMaxSize);
constexpr size_t kMaxAlignment = size_t{2} << 20;

bool IsAlignment(size_t alignment) {
  return alignment <= kMaxAlignment && (alignment & (alignment - 1)) == 0;
}

}  // namespace

absl::StatusOr<void*> CachingAllocator::Impl::Allocate(Bytes size, const Request& request,
                                                       OutOfMemory* details) {
  if (size == Bytes(0)) return nullptr;
  if (size < Bytes(0)) return absl::InvalidArgumentError("negative size");
  if (request.alignment > Heap::kAlignment && !IsAlignment(request.alignment)) {
    return absl::InvalidArgumentError(absl::StrCat("an alignment of ", request.alignment,
                                                   ": allowed are powers of two up to ",
                                                   kMaxAlignment));
  }
  Arena* arena = arenas_.Find(request.stream, request.pool);
  if (arena == nullptr) return absl::FailedPreconditionError("the pool was destroyed");
  const Need need{size, checks_ == nullptr ? size : checks_->Wrap(size, request.alignment),
                  request};
  Shortage shortage;
  void* block = TryAllocate(arena, need, &shortage);
  if (block == nullptr) {
    const absl::StatusOr<void*> hard = AllocateHard(arena, need, shortage, details);
    if (!hard.ok()) return hard;
    block = *hard;
  }
  ledger_.Remember(HistoryAction::kAlloc, AddressOf(block), size.count(), request.stream);
  return checks_ == nullptr ? block : checks_->OnAllocate(block, size, request.alignment);
}

void* CachingAllocator::Impl::TryAllocate(Arena* arena, const Need& need, Shortage* shortage) {
  const int64_t size = need.size.count();
  const size_t alignment = need.request.alignment;
  const bool aligned = alignment > Heap::kAlignment;
  if (size <= kMaxSmall && (!aligned || alignment <= SmallCache::kMaxSize)) {
    const int size_class =
        aligned ? SmallCache::ClassOf(size, alignment) : SmallCache::ClassOf(size);
    return arena->AllocateSmall(size_class, need.asked.count(), shortage);
  }
  const int64_t most = std::min(ledger_.budget(), capacity_);
  if (size > most) {
    *shortage = {.bytes = size - most, .device_exhausted = size > capacity_};
    return nullptr;
  }
  // Only one block may start in a page: none is smaller than that.
  const size_t rounded = std::max<size_t>((size + 63) / 64 * 64, SmallCache::kMaxSize + 64);
  return arena->Allocate(rounded, std::max(alignment, Heap::kAlignment),
                         need.request.stays ? Heap::End::kHigh : Heap::End::kLow,
                         need.asked.count(), shortage);
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

// Ends the wait of what is in the quarantine, as far as that makes `at_least` bytes or there is
// any. Returns whether there was.
bool CachingAllocator::Impl::EndQuarantine(Bytes at_least) {
  if (checks_ == nullptr) return false;
  const std::vector<void*> blocks = checks_->Drain(at_least);
  EndHolds(blocks);
  return !blocks.empty();
}

// What did not fit in at first: the quarantine, other arenas' caches, waiting, the pressure
// handler, in this order.
absl::StatusOr<void*> CachingAllocator::Impl::AllocateHard(Arena* arena, const Need& need,
                                                           Shortage shortage,
                                                           OutOfMemory* details) {
  if (need.size.count() > std::min(ledger_.budget(), capacity_)) {  // nothing can help
    return Fail(need.asked, shortage, details);
  }
  const auto retry = [&] { return TryAllocate(arena, need, &shortage); };
  int64_t frees = -1;
  int idle_rounds = 0;
  for (bool again = true;;) {
    for (const Bytes at_least : {Bytes(std::max<int64_t>(shortage.bytes, 1)), Bytes::Max()}) {
      if (!EndQuarantine(at_least)) break;
      if (void* block = retry()) return block;
    }
    if (ReclaimElsewhere(arena, shortage)) {
      if (void* block = retry()) return block;
    }
    if (WaitAndReclaim(shortage, /*only_if_enough=*/again)) {
      if (void* block = retry()) return block;
    }
    if (!again || HandlerFrame::Contains(this)) break;
    if (!shortage.failure.ok()) break;  // no eviction repairs a device
    const int64_t frees_now = CountFrees();
    idle_rounds = frees_now == frees ? idle_rounds + 1 : 0;
    frees = frees_now;
    if (idle_rounds == kMaxIdleRounds) break;
    // When it has nothing more, one last look: another thread may have freed something meanwhile.
    again = CallHandler(need.asked, shortage);
    if (void* block = retry()) return block;
  }
  return Fail(need.asked, shortage, details);
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
  if (!shortage.failure.ok()) {
    return absl::Status(shortage.failure.code(), absl::StrCat("asked for ", FormatBytes(asked),
                                                              ": ", shortage.failure.message()));
  }
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
  for (const PoolUsage& pool : stats.pools) {
    if (pool.pool != kSharedPool) numbers.kept_by_pools += pool.usage.cached.current;
  }
  numbers.largest_free_range = LargestFreeRange();
  numbers.device_exhausted = shortage.device_exhausted;
  numbers.needs_contiguous = shortage.needs_contiguous;
  if (details != nullptr) *details = numbers;
  return absl::ResourceExhaustedError(FormatOutOfMemory(numbers));
}

int64_t CachingAllocator::Impl::CountFrees() const {
  int64_t frees = 0;
  for (const Arena* arena : arenas_.All()) frees += arena->CountFrees();
  return frees;
}

}  // namespace ebbtide
