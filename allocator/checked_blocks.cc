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
    : options_(options), zone_(static_cast<size_t>(options.red_zone.count())) {
  EBB_CHECK(options.red_zone > Bytes(0) && options.red_zone % Bytes(64) == Bytes(0))
      << "a red zone of " << options.red_zone;
  CallStack::Prepare();
}

Bytes CheckedBlocks::Wrap(Bytes size) const {
  if (size <= Bytes(0)) return size;
  const Bytes zones = options_.red_zone * 2;
  return size > Bytes::Max() - zones ? Bytes::Max() : size + zones;
}

const CheckedBlock* CheckedBlocks::FindOverlap(uintptr_t begin, uintptr_t end) const {
  const auto next = blocks_.lower_bound(begin + zone_);
  if (next != blocks_.end() && next->first - zone_ < end) return next->second.get();
  if (next == blocks_.begin()) return nullptr;
  const CheckedBlock* before = std::prev(next)->second.get();
  return before->payload + static_cast<size_t>(before->size.count()) + zone_ > begin ? before
                                                                                     : nullptr;
}

void* CheckedBlocks::OnAllocate(void* block, Bytes size) {
  if (block == nullptr) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  auto fresh = std::make_shared<CheckedBlock>();
  fresh->payload = begin + zone_;
  fresh->size = size;
  fresh->allocating_thread = ThreadId();
  fresh->allocated = CallStack::Capture(1);
  std::optional<CheckedBlock> overlap;
  {
    MutexLock lock(&mutex_);
    const auto end = begin + static_cast<size_t>(Wrap(size).count());
    if (const CheckedBlock* other = FindOverlap(begin, end)) overlap = *other;
  }
  if (overlap.has_value()) {
    ReportFault(absl::StrFormat("handed out twice: the allocator gave %d bytes at %p, which are in "
                                "use by another block",
                                Wrap(size).count(), block),
                &*overlap, fresh->allocated);
  }
  FillRedZones(*fresh, zone_);
  MutexLock lock(&mutex_);
  fresh->number = ++allocations_;
  ++live_;
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
  const CallStack stack = CallStack::Capture(1);
  const Shared block = Claim(reinterpret_cast<uintptr_t>(payload), size, stack);
  CheckRedZones(*block, zone_);
  Poison(*block);
  std::vector<Shared> leaving;
  {
    MutexLock lock(&mutex_);
    block->state = State::kQuarantined;
    if (Wrap(block->size) > options_.quarantine) {
      Forget(block);
      leaving.push_back(block);
    } else {
      waiting_.push_back(block);
      waiting_bytes_ += Wrap(block->size);
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
    waiting_bytes_ -= Wrap(leaving->back()->size);
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
    CheckRedZones(*block, zone_);
    CheckPoison(*block);
    blocks.push_back(reinterpret_cast<void*>(block->payload - zone_));
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

void CheckedBlocks::CheckAll() const {
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

int64_t CheckedBlocks::live_blocks() const {
  MutexLock lock(&mutex_);
  return live_;
}

}  // namespace ebbtide
