// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_device.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "allocator/host_memory.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

// Far above what an allocator mistakes for null plus an offset, and never mapped by Linux programs
// at such low values: whoever dereferences an address of this device gets a fault.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 30;

// Addresses between ranges that belong to nobody, so that two ranges never look contiguous.
constexpr uintptr_t kGap = uintptr_t{1} << 30;

constexpr uintptr_t kLastAddress = uintptr_t{1} << 47;  // as on x86-64

// HostMemory aligns what it reserves to this.
constexpr Bytes kHostAlignment = Bytes(int64_t{2} << 20);

SimulatedDevice::Options Complete(SimulatedDevice::Options options) {
  const int64_t granule = options.granularity.count();
  EBB_CHECK(granule >= 4096 && (granule & (granule - 1)) == 0)
      << "granularity must be a power of two of at least 4 KiB, not " << granule;
  if (options.large_piece == Bytes(0)) options.large_piece = options.granularity;
  EBB_CHECK(options.large_piece > Bytes(0) && options.large_piece.count() % granule == 0)
      << "a large piece must be whole granules, not " << options.large_piece.count();
  EBB_CHECK(!options.move || options.partial_decommit) << "only what is in pieces can be moved";
  return options;
}

std::unique_ptr<DeviceMemory> MakeBytes(const SimulatedDevice::Options& options) {
  if (!options.with_bytes) return nullptr;
  auto bytes = std::make_unique<HostMemory>();
  EBB_CHECK(options.granularity >= bytes->granularity() && options.granularity <= kHostAlignment)
      << "no bytes for granules of " << options.granularity.count();
  return bytes;
}

int64_t CountPieces(const std::vector<PieceMap::Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                         [](int64_t sum, const PieceMap::Run& run) { return sum + run.pieces(); });
}

int64_t CountBytes(const std::vector<PieceMap::Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                         [](int64_t sum, const PieceMap::Run& run) {
                           return sum + static_cast<int64_t>(run.end - run.begin);
                         });
}

}  // namespace

SimulatedDevice::SimulatedDevice(Options options)
    : options_(Complete(options)), bytes_(MakeBytes(options)), next_address_(kFirstAddress) {}

SimulatedDevice::~SimulatedDevice() {
  EBB_CHECK(ranges_.empty()) << ranges_.size() << " address ranges were never unreserved";
  EBB_CHECK(watchers_.empty()) << "the device goes before who watches it";
}

absl::Status SimulatedDevice::CheckArguments(const void* address, Bytes size) const {
  const auto bits = reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(size.count());
  if (size > Bytes(0) && bits % options_.granularity.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("range is not a positive number of whole granules: ", size.count()));
}

void SimulatedDevice::CheckReserved(uintptr_t address, int64_t size) const {
  auto it = ranges_.upper_bound(address);
  EBB_CHECK(it != ranges_.begin()) << "address " << address << " was never reserved";
  --it;
  EBB_CHECK(static_cast<int64_t>(address - it->first) + size <= it->second)
      << size << " bytes at " << address << " lie outside of any reserved range";
}

void SimulatedDevice::CheckWholePieces(uintptr_t begin, uintptr_t end) const {
  EBB_CHECK(pieces_.HasAll(begin, end)) << "not committed at " << begin;
  EBB_CHECK(!pieces_.Cuts(begin) && !pieces_.Cuts(end))
      << end - begin << " bytes at " << begin << " are a part of a piece";
}

absl::Status SimulatedDevice::CheckRoom(int64_t bytes) const {
  if (bytes <= options_.capacity.count() - committed_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the simulated device has no ", bytes, " bytes left"));
}

void SimulatedDevice::Grow(int64_t bytes) {
  committed_ += bytes;
  peak_committed_ = std::max(peak_committed_, committed_);
}

void SimulatedDevice::Charge(Nanos duration) {
  driver_time_ += duration;
  clock_.Advance(duration);
}

void SimulatedDevice::TellWatchers(uintptr_t begin, uintptr_t end) {
  for (MemoryWatcher* watcher : watchers_) watcher->BeforeTaking(begin, end);
}

absl::StatusOr<uintptr_t> SimulatedDevice::FindAddresses(int64_t size) {
  if (bytes_ != nullptr) {
    EBB_ASSIGN_OR_RETURN(void* const address, bytes_->Reserve(Bytes(size)));
    return reinterpret_cast<uintptr_t>(address);
  }
  const auto length = static_cast<uintptr_t>(size);
  if (length > kLastAddress || next_address_ + length + kGap > kLastAddress) {
    return absl::ResourceExhaustedError("the simulated device has no addresses left");
  }
  const uintptr_t address = next_address_;
  const uintptr_t alignment = std::max<uintptr_t>(kGap, options_.granularity.count());
  next_address_ = (address + length + kGap + alignment - 1) / alignment * alignment;
  return address;
}

absl::StatusOr<void*> SimulatedDevice::Reserve(Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(nullptr, size));
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_RETURN_IF_ERROR(failures_.Count(DriverCall::kReserve));
  if (!options_.partial_decommit) EBB_RETURN_IF_ERROR(CheckRoom(size.count()));
  EBB_ASSIGN_OR_RETURN(const uintptr_t begin, FindAddresses(size.count()));
  void* const address = reinterpret_cast<void*>(begin);
  Nanos cost = options_.latency.reserve;
  if (!options_.partial_decommit) {
    if (bytes_ != nullptr) {
      if (absl::Status status = bytes_->Commit(address, size); !status.ok()) {
        EBB_CHECK(bytes_->Unreserve(address, size).ok());
        return status;
      }
    }
    pieces_.Add({begin, begin + size.count(), static_cast<size_t>(size.count())});
    Grow(size.count());
    cost += options_.latency.Commit();
  }
  ranges_[begin] = size.count();
  Charge(cost);
  return address;
}

absl::Status SimulatedDevice::Commit(void* address, Bytes size, Bytes piece) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  EBB_RETURN_IF_ERROR(CheckArguments(nullptr, piece));
  if (size % piece != Bytes(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(size.count(), " bytes are no pieces of ", piece.count()));
  }
  if (!options_.partial_decommit) return absl::UnimplementedError("Commit of a part");
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  CheckReserved(begin, size.count());
  EBB_CHECK(!pieces_.HasAny(begin, begin + size.count())) << "committed twice at " << address;
  EBB_RETURN_IF_ERROR(failures_.Count(DriverCall::kCommit));
  EBB_RETURN_IF_ERROR(CheckRoom(size.count()));
  if (bytes_ != nullptr) EBB_RETURN_IF_ERROR(bytes_->Commit(address, size));
  pieces_.Add({begin, begin + size.count(), static_cast<size_t>(piece.count())});
  Grow(size.count());
  Charge(options_.latency.Commit() * (size / piece));
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Decommit(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  if (!options_.partial_decommit) return absl::UnimplementedError("Decommit of a part");
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + size.count();
  std::lock_guard<std::mutex> lock(mutex_);
  CheckReserved(begin, size.count());
  CheckWholePieces(begin, end);
  TellWatchers(begin, end);
  EBB_RETURN_IF_ERROR(failures_.Count(DriverCall::kDecommit));
  if (bytes_ != nullptr) EBB_RETURN_IF_ERROR(bytes_->Decommit(address, size));
  Charge(options_.latency.Decommit() * CountPieces(pieces_.Take(begin, end)));
  committed_ -= size.count();
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Move(void* from, void* to, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(from, size));
  EBB_RETURN_IF_ERROR(CheckArguments(to, size));
  if (!options_.move) return absl::UnimplementedError("Move");
  const auto begin = reinterpret_cast<uintptr_t>(from);
  const auto target = reinterpret_cast<uintptr_t>(to);
  std::lock_guard<std::mutex> lock(mutex_);
  CheckReserved(begin, size.count());
  CheckReserved(target, size.count());
  CheckWholePieces(begin, begin + size.count());
  EBB_CHECK(!pieces_.HasAny(target, target + size.count())) << "moved onto memory at " << to;
  TellWatchers(begin, begin + size.count());
  EBB_RETURN_IF_ERROR(failures_.Count(DriverCall::kMove));
  if (bytes_ != nullptr) {
    EBB_RETURN_IF_ERROR(bytes_->Commit(to, size));
    if (absl::Status status = bytes_->Decommit(from, size); !status.ok()) {
      EBB_CHECK(bytes_->Decommit(to, size).ok());
      return status;
    }
  }
  const std::vector<PieceMap::Run> runs = pieces_.Take(begin, begin + size.count());
  for (const PieceMap::Run& run : runs) {
    pieces_.Add({run.begin - begin + target, run.end - begin + target, run.piece});
  }
  Charge(options_.latency.Move() * CountPieces(runs));
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Unreserve(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + size.count();
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(begin);
  EBB_CHECK(it != ranges_.end() && it->second == size.count())
      << "Unreserve at " << address << " is not what Reserve returned";
  TellWatchers(begin, end);
  EBB_RETURN_IF_ERROR(failures_.Count(DriverCall::kUnreserve));
  if (bytes_ != nullptr) EBB_RETURN_IF_ERROR(bytes_->Unreserve(address, size));
  const std::vector<PieceMap::Run> runs = pieces_.Take(begin, end);
  Charge(options_.latency.Decommit() * CountPieces(runs));
  committed_ -= CountBytes(runs);
  ranges_.erase(it);
  return absl::OkStatus();
}

Nanos SimulatedDevice::driver_time() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return driver_time_;
}

Bytes SimulatedDevice::committed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(committed_);
}

Bytes SimulatedDevice::peak_committed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(peak_committed_);
}

bool SimulatedDevice::IsCommitted(const void* address, Bytes size) const {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  return pieces_.HasAll(begin, begin + size.count());
}

void SimulatedDevice::Watch(MemoryWatcher* watcher) {
  std::lock_guard<std::mutex> lock(mutex_);
  watchers_.push_back(watcher);
}

void SimulatedDevice::Unwatch(MemoryWatcher* watcher) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase(watchers_, watcher);
}

}  // namespace ebbtide
