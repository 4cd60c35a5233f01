// SPDX-License-Identifier: Apache-2.0
//
// DriverCallCounter passes everything on to another device and counts the calls that a GPU's driver
// would have seen for it, by the rules that the models of other allocators are counted by: one to
// reserve or unreserve a range; for each piece of memory two when it comes (create, map), two when
// it goes (unmap, release) and two when it moves (unmap, map); one for the access rights of each
// run that was mapped.
//
// Thread-safe: one lock. Ownership: the device must outlive it.

#ifndef EBBTIDE_BENCH_ALLOCATOR_DRIVER_CALL_COUNTER_H_
#define EBBTIDE_BENCH_ALLOCATOR_DRIVER_CALL_COUNTER_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "allocator/device_memory.h"

namespace ebbtide::bench {

class DriverCallCounter : public DeviceMemory {
 public:
  explicit DriverCallCounter(DeviceMemory* device) : device_(device) {}

  int64_t calls() const;

  Bytes granularity() const override { return device_->granularity(); }
  Bytes preferred_unit() const override { return device_->preferred_unit(); }
  Bytes large_piece() const override { return device_->large_piece(); }
  bool supports_partial_decommit() const override { return device_->supports_partial_decommit(); }
  absl::StatusOr<void*> Reserve(Bytes size) override;
  using DeviceMemory::Commit;
  absl::Status Commit(void* address, Bytes size, Bytes piece) override;
  absl::Status Decommit(void* address, Bytes size) override;
  bool supports_move() const override { return device_->supports_move(); }
  absl::Status Move(void* from, void* to, Bytes size) override;
  absl::Status Unreserve(void* address, Bytes size) override;
  Bytes capacity() const override { return device_->capacity(); }
  bool is_host_accessible() const override { return device_->is_host_accessible(); }

 private:
  int64_t DropPieces(uintptr_t begin, int64_t size);

  DeviceMemory* const device_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, int64_t> pieces_;  // size by address
  int64_t calls_ = 0;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_DRIVER_CALL_COUNTER_H_
