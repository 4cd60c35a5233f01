// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/driver_call_counter.h"

#include <vector>

namespace ebbtide::bench {
namespace {

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

int64_t DriverCallCounter::calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

absl::StatusOr<void*> DriverCallCounter::Reserve(Bytes size) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
  return device_->Reserve(size);
}

absl::Status DriverCallCounter::Commit(void* address, Bytes size, Bytes piece) {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status status = device_->Commit(address, size, piece);
  calls_ += 2 * (size / piece) + 1;
  if (!status.ok()) return status;
  for (int64_t at = 0; at < size.count(); at += piece.count()) {
    pieces_[Address(address) + at] = piece.count();
  }
  return status;
}

// Forgets the pieces in a range and returns how many there were.
int64_t DriverCallCounter::DropPieces(uintptr_t begin, int64_t size) {
  const auto first = pieces_.lower_bound(begin);
  const auto last = pieces_.lower_bound(begin + size);
  const int64_t count = std::distance(first, last);
  pieces_.erase(first, last);
  return count;
}

absl::Status DriverCallCounter::Decommit(void* address, Bytes size) {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status status = device_->Decommit(address, size);
  calls_ += status.ok() ? 2 * DropPieces(Address(address), size.count()) : 1;
  return status;
}

absl::Status DriverCallCounter::Move(void* from, void* to, Bytes size) {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status status = device_->Move(from, to, size);
  ++calls_;
  if (!status.ok()) return status;
  const auto first = pieces_.lower_bound(Address(from));
  const auto last = pieces_.lower_bound(Address(from) + size.count());
  const std::vector<std::pair<uintptr_t, int64_t>> moved(first, last);
  pieces_.erase(first, last);
  for (const auto& [address, piece] : moved) {
    pieces_[Address(to) + (address - Address(from))] = piece;
  }
  calls_ += 2 * static_cast<int64_t>(moved.size());
  return status;
}

absl::Status DriverCallCounter::Unreserve(void* address, Bytes size) {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status status = device_->Unreserve(address, size);
  calls_ += 1 + (status.ok() ? 2 * DropPieces(Address(address), size.count()) : 0);
  return status;
}

}  // namespace ebbtide::bench
