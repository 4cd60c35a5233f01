// SPDX-License-Identifier: Apache-2.0

#include "allocator/block_checker.h"

#include <iterator>
#include <optional>

#include "base/check.h"

namespace ebbtide {

BlockChecker::BlockChecker(SimulatedDevice* device, SimulatedStreams* streams)
    : device_(device), streams_(streams) {
  device_->Watch(this);
}

BlockChecker::~BlockChecker() { device_->Unwatch(this); }

bool BlockChecker::OverlapsLive(uintptr_t begin, uintptr_t end) const {
  const auto after = live_.lower_bound(end);
  return after != live_.begin() && std::prev(after)->second > begin;
}

void BlockChecker::CheckHandOut(const void* begin, Bytes size, StreamId stream) {
  EBB_CHECK(size > Bytes(0)) << "a block of " << size.count() << " bytes";
  EBB_CHECK(device_->IsCommitted(begin, size))
      << "block at " << begin << " is handed out without memory behind all of it";
  if (streams_ != nullptr) {
    const std::optional<StreamId> other = streams_->FindConflict(begin, size, stream);
    EBB_CHECK(!other.has_value()) << "block at " << begin << " is handed out on stream " << stream
                                  << " while queued work of stream " << *other << " touches it";
  }
  const auto first = reinterpret_cast<uintptr_t>(begin);
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_CHECK(!OverlapsLive(first, first + size.count()))
      << "block at " << begin << " is handed out over a live block";
  live_[first] = first + size.count();
}

void BlockChecker::CheckTakeBack(const void* begin) {
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_CHECK(live_.erase(reinterpret_cast<uintptr_t>(begin)) == 1)
      << "block at " << begin << " is taken back, but it is not live";
}

int64_t BlockChecker::live_blocks() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(live_.size());
}

void BlockChecker::BeforeTaking(uintptr_t begin, uintptr_t end) {
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_CHECK(!OverlapsLive(begin, end))
      << "memory is taken from under a live block in [" << begin << ", " << end << ")";
}

}  // namespace ebbtide
