// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

// Far above what an allocator mistakes for null plus an offset, and never mapped by Linux programs
// at such low values: whoever dereferences an address of this device gets a fault.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 30;

// Addresses between ranges that belong to nobody, so that two ranges never look contiguous.
constexpr uintptr_t kGap = uintptr_t{1} << 30;

}  // namespace

SimulatedDevice::SimulatedDevice(Options options)
    : options_(options), next_address_(kFirstAddress) {
  const int64_t granule = options.granularity.count();
  EBB_CHECK(granule >= 4096 && (granule & (granule - 1)) == 0)
      << "granularity must be a power of two of at least 4 KiB, not " << granule;
}

SimulatedDevice::~SimulatedDevice() {
  EBB_CHECK(ranges_.empty()) << ranges_.size() << " address ranges were never unreserved";
}

absl::Status SimulatedDevice::CheckArguments(const void* address, Bytes size) const {
  const auto bits = reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(size.count());
  if (size > Bytes(0) && bits % options_.granularity.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("range is not a positive number of whole granules: ", size.count()));
}

bool SimulatedDevice::FailsNow() {
  ++calls_;
  if (fail_at_ == 0) return false;
  return calls_ == fail_at_ || (fail_for_ever_ && calls_ > fail_at_);
}

absl::Status SimulatedDevice::Grow(int64_t bytes) {
  if (committed_ + bytes > options_.capacity.count()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the simulated device has no ", bytes, " bytes left"));
  }
  committed_ += bytes;
  peak_committed_ = std::max(peak_committed_, committed_);
  return absl::OkStatus();
}

absl::StatusOr<void*> SimulatedDevice::Reserve(Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(nullptr, size));
  std::lock_guard<std::mutex> lock(mutex_);
  if (FailsNow()) return absl::ResourceExhaustedError("injected failure of Reserve");
  const uintptr_t limit = uintptr_t{1} << 47;  // as on x86-64
  const auto bytes = static_cast<uintptr_t>(size.count());
  if (bytes > limit || next_address_ + bytes + kGap > limit) {
    return absl::ResourceExhaustedError("the simulated device has no addresses left");
  }
  if (!options_.partial_decommit) EBB_RETURN_IF_ERROR(Grow(size.count()));
  const uintptr_t address = next_address_;
  Range& range = ranges_[address];
  range.size = size.count();
  range.committed.assign(size / options_.granularity, !options_.partial_decommit);
  const uintptr_t alignment = std::max<uintptr_t>(kGap, options_.granularity.count());
  next_address_ = (address + bytes + kGap + alignment - 1) / alignment * alignment;
  return reinterpret_cast<void*>(address);
}

SimulatedDevice::Range& SimulatedDevice::FindRange(uintptr_t address, int64_t size,
                                                   int64_t* first_granule) {
  auto it = ranges_.upper_bound(address);
  EBB_CHECK(it != ranges_.begin()) << "address " << address << " was never reserved";
  --it;
  const auto offset = static_cast<int64_t>(address - it->first);
  EBB_CHECK(offset + size <= it->second.size)
      << size << " bytes at " << address << " lie outside of any reserved range";
  *first_granule = offset / options_.granularity.count();
  return it->second;
}

absl::Status SimulatedDevice::Commit(void* address, Bytes size, Bytes piece) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  EBB_RETURN_IF_ERROR(CheckArguments(address, piece));
  if (!options_.partial_decommit) return absl::UnimplementedError("Commit of a part");
  std::lock_guard<std::mutex> lock(mutex_);
  if (FailsNow()) return absl::ResourceExhaustedError("injected failure of Commit");
  int64_t first = 0;
  Range& range = FindRange(reinterpret_cast<uintptr_t>(address), size.count(), &first);
  const auto begin = range.committed.begin() + first;
  const auto end = begin + size / options_.granularity;
  EBB_CHECK(std::find(begin, end, true) == end) << "committed twice at " << address;
  EBB_RETURN_IF_ERROR(Grow(size.count()));
  std::fill(begin, end, true);
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Decommit(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  if (!options_.partial_decommit) return absl::UnimplementedError("Decommit of a part");
  std::lock_guard<std::mutex> lock(mutex_);
  if (FailsNow()) return absl::ResourceExhaustedError("injected failure of Decommit");
  int64_t first = 0;
  Range& range = FindRange(reinterpret_cast<uintptr_t>(address), size.count(), &first);
  const auto begin = range.committed.begin() + first;
  const auto end = begin + size / options_.granularity;
  EBB_CHECK(std::find(begin, end, false) == end) << "not committed at " << address;
  std::fill(begin, end, false);
  committed_ -= size.count();
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Unreserve(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckArguments(address, size));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(reinterpret_cast<uintptr_t>(address));
  EBB_CHECK(it != ranges_.end() && it->second.size == size.count())
      << "Unreserve at " << address << " is not what Reserve returned";
  const auto& bits = it->second.committed;
  committed_ -= std::count(bits.begin(), bits.end(), true) * options_.granularity.count();
  ranges_.erase(it);
  return absl::OkStatus();
}

void SimulatedDevice::FailAt(int64_t n, bool for_ever) {
  std::lock_guard<std::mutex> lock(mutex_);
  fail_at_ = n == 0 ? 0 : calls_ + n;
  fail_for_ever_ = for_ever;
}

int64_t SimulatedDevice::calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

Bytes SimulatedDevice::committed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(committed_);
}

Bytes SimulatedDevice::peak_committed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(peak_committed_);
}

}  // namespace ebbtide
