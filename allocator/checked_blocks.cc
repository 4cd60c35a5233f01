// SPDX-License-Identifier: Apache-2.0

#include "allocator/checked_blocks.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "allocator/memory_fault.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// Blocks that are remembered after their memory was given back.
constexpr size_t kMaxGone = 4096;

constexpr char kDoubleFree[] = "double free: free of a block that was freed before";
constexpr char kSizeOfFreed[] = "use after free: size of a block that was freed before";

int64_t ThreadId() { return syscall(SYS_gettid); }

}  // namespace

CheckedBlocks::CheckedBlocks(Options options)
    : options_(options),
      zone_(options.bytes_reachable ? static_cast<size_t>(options.red_zone.count()) : 0) {
  EBB_CHECK(options.red_zone > Bytes(0) && options.red_zone % Bytes(64) == Bytes(0))
      << "a red zone of " << options.red_zone;
  CallStack::Prepare();
}

// The front red zone grows to the alignment, so that the payload keeps it.
size_t CheckedBlocks::FrontOf(size_t alignment) const {
  return zone_ == 0 ? 0 : std::max(zone_, alignment);
}

uintptr_t CheckedBlocks::EndOf(const CheckedBlock& block) const {
  return block.payload + static_cast<size_t>(block.size.count()) + zone_;
}

Bytes CheckedBlocks::Wrap(Bytes size, size_t alignment) const {
  if (size <= Bytes(0)) return size;
  const Bytes zones(static_cast<int64_t>(FrontOf(alignment) + zone_));
  return size > Bytes::Max() - zones ? Bytes::Max() : size + zones;
}

// A block that shares bytes with [begin, end), red zones included. Blocks do not overlap, so that
// only the last one before `begin` and the first one after it can.
const CheckedBlock* CheckedBlocks::FindOverlap(uintptr_t begin, uintptr_t end) const {
  const auto next = blocks_.upper_bound(begin);
  if (next != blocks_.end() && BeginOf(*next->second) < end) return next->second.get();
  if (next == blocks_.begin()) return nullptr;
  const CheckedBlock* before = std::prev(next)->second.get();
  return EndOf(*before) > begin ? before : nullptr;
}

void* CheckedBlocks::OnAllocate(void* block, Bytes size, size_t alignment) {
  if (block == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  auto fresh = std::make_shared<CheckedBlock>();
  fresh->front = FrontOf(alignment);
  fresh->payload = begin + fresh->front;
  fresh->size = size;
  fresh->allocating_thread = ThreadId();
  fresh->allocated = CallStack::Capture(1);
  std::optional<CheckedBlock> overlap;
  {
    MutexLock lock(&mutex_);
    if (const CheckedBlock* other = FindOverlap(begin, EndOf(*fresh))) overlap = *other;
  }
  if (overlap.has_value()) {
    ReportFault(absl::StrFormat("handed out twice: the allocator gave %d bytes at %p, which are in "
                                "use by another block",
                                Occupied(*fresh).count(), block),
                &*overlap, fresh->allocated);
  }
  FillRedZones(*fresh, zone_);
  MutexLock lock(&mutex_);
  fresh->number = ++allocations_;
  ++live_;
  live_bytes_ += size;
  gone_.erase(fresh->payload);
  blocks_[fresh->payload] = fresh;
  return reinterpret_cast<void*>(fresh->payload);
}

// The block that begins at this address, or the report that there is none.
CheckedBlocks::Shared CheckedBlocks::FindOrFault(uintptr_t address, Call call) const {
  std::optional<CheckedBlock> around;
  std::optional<CheckedBlock> gone;
  {
    MutexLock lock(&mutex_);
    const auto found = blocks_.find(address);
    if (found != blocks_.end()) return found->second;
    if (const CheckedBlock* other = FindOverlap(address, address + 1)) around = *other;
    const auto past = gone_.find(address);
    if (past != gone_.end()) gone = *past->second;
  }
  const CallStack here = CallStack::Capture(2);
  const char* const what = call == Call::kFree ? "free" : "size";
  if (gone.has_value()) {
    ReportFault(call == Call::kFree ? kDoubleFree : kSizeOfFreed, &*gone, here);
  }
  if (around.has_value()) {
    ReportFault(absl::StrFormat("foreign pointer: %s of %#x, %d bytes from the begin of a block",
                                what, address, static_cast<int64_t>(address - around->payload)),
                &*around, here);
  }
  ReportFault(
      absl::StrFormat("foreign pointer: %s of %#x, which was not allocated here", what, address),
      nullptr, here);
}

// Makes this call the one that frees the block, or reports why it cannot be.
CheckedBlocks::Shared CheckedBlocks::Claim(uintptr_t payload, std::optional<Bytes> size,
                                           const CallStack& stack) {
  const Shared block = FindOrFault(payload, Call::kFree);
  CheckedBlock before;
  {
    MutexLock lock(&mutex_);
    before = *block;
    if (before.state == State::kLive && size.value_or(before.size) == before.size) {
      block->state = State::kBeingFreed;
      block->freeing_thread = ThreadId();
      block->freed = stack;
      --live_;
      live_bytes_ -= block->size;
      return block;
    }
  }
  if (before.state != State::kLive) {
    ReportFault(kDoubleFree, &before, stack);
  }
  ReportFault(
      absl::StrFormat("wrong size: free of %d bytes for a block of another size", size->count()),
      &before, stack);
}

std::vector<void*> CheckedBlocks::OnFree(void* payload, std::optional<Bytes> size) {
  if (payload == nullptr) return {};
  BeginFree(payload, size);
  return EndFree(payload);
}

void* CheckedBlocks::BeginFree(void* payload, std::optional<Bytes> size) {
  const CallStack stack = CallStack::Capture(2);
  const Shared block = Claim(reinterpret_cast<uintptr_t>(payload), size, stack);
  if (options_.bytes_reachable) {
    CheckRedZones(*block, zone_);
    Poison(*block);
  }
  return reinterpret_cast<void*>(BeginOf(*block));
}

std::vector<void*> CheckedBlocks::EndFree(void* payload) {
  std::vector<Shared> leaving;
  {
    MutexLock lock(&mutex_);
    const Shared block = blocks_.at(reinterpret_cast<uintptr_t>(payload));
    block->state = State::kQuarantined;
    if (!options_.bytes_reachable || Occupied(*block) > options_.quarantine) {
      Forget(block);
      leaving.push_back(block);
    } else {
      waiting_.push_back(block);
      waiting_bytes_ += Occupied(*block);
      TakeWaiting(options_.quarantine, &leaving);
    }
  }
  return Release(leaving);
}

// Ends the waiting of the longest waiting blocks until at most `until` bytes wait.
void CheckedBlocks::TakeWaiting(Bytes until, std::vector<Shared>* leaving) {
  while (!waiting_.empty() && waiting_bytes_ > until) {
    leaving->push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    waiting_bytes_ -= Occupied(*leaving->back());
    Forget(leaving->back());
  }
}

// Moves a block from those whose memory is ours to those that are only remembered.
void CheckedBlocks::Forget(const Shared& block) {
  blocks_.erase(block->payload);
  block->state = State::kGone;
  gone_[block->payload] = block;
  gone_order_.push_back(block);
  if (gone_order_.size() <= kMaxGone) return;
  const auto oldest = gone_.find(gone_order_.front()->payload);
  if (oldest != gone_.end() && oldest->second == gone_order_.front()) gone_.erase(oldest);
  gone_order_.pop_front();
}

std::vector<void*> CheckedBlocks::Release(const std::vector<Shared>& leaving) const {
  std::vector<void*> blocks;
  for (const Shared& block : leaving) {
    if (options_.bytes_reachable) {
      CheckRedZones(*block, zone_);
      CheckPoison(*block);
    }
    blocks.push_back(reinterpret_cast<void*>(BeginOf(*block)));
  }
  return blocks;
}

std::vector<void*> CheckedBlocks::Drain(Bytes at_least) {
  std::vector<Shared> leaving;
  {
    MutexLock lock(&mutex_);
    TakeWaiting(std::max(waiting_bytes_ - at_least, Bytes(0)), &leaving);
  }
  return Release(leaving);
}

Bytes CheckedBlocks::SizeOf(const void* payload) const {
  const Shared block = FindOrFault(reinterpret_cast<uintptr_t>(payload), Call::kSizeOf);
  CheckedBlock copy;
  {
    MutexLock lock(&mutex_);
    copy = *block;
  }
  if (copy.state != State::kLive) {
    ReportFault(kSizeOfFreed, &copy, CallStack::Capture(0));
  }
  return copy.size;
}

bool CheckedBlocks::Owns(const void* payload) const {
  MutexLock lock(&mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(payload));
  return found != blocks_.end() && found->second->state == State::kLive;
}

std::optional<CheckedBlocks::Extent> CheckedBlocks::Find(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(&mutex_);
  auto found = blocks_.upper_bound(at);
  if (found == blocks_.begin()) return std::nullopt;
  const CheckedBlock& block = *std::prev(found)->second;
  if (block.state != State::kLive) return std::nullopt;
  if (at >= block.payload + static_cast<size_t>(block.size.count())) return std::nullopt;
  return Extent{reinterpret_cast<void*>(BeginOf(block)), reinterpret_cast<void*>(block.payload),
                block.size};
}

std::string CheckedBlocks::Describe(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::optional<CheckedBlock> copy;
  {
    MutexLock lock(&mutex_);
    const auto past = gone_.find(at);
    if (const CheckedBlock* block = FindOverlap(at, at + 1)) {
      copy = *block;
    } else if (past != gone_.end()) {
      copy = *past->second;
    }
  }
  return copy.has_value() ? DescribeBlock(*copy) : std::string();
}

void CheckedBlocks::CheckAll() const {
  if (!options_.bytes_reachable) return;
  MutexLock lock(&mutex_);
  for (const auto& [payload, block] : blocks_) {
    if (block->state == State::kBeingFreed) continue;  // its thread is filling it
    CheckRedZones(*block, zone_);
    if (block->state == State::kQuarantined) CheckPoison(*block);
  }
}

Bytes CheckedBlocks::quarantined() const {
  MutexLock lock(&mutex_);
  return waiting_bytes_;
}

CheckedBlocks::Counts CheckedBlocks::counts() const {
  MutexLock lock(&mutex_);
  return {.live_blocks = live_, .live = live_bytes_, .quarantined = waiting_bytes_};
}

int64_t CheckedBlocks::live_blocks() const {
  MutexLock lock(&mutex_);
  return live_;
}

}  // namespace ebbtide
