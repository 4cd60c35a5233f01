// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDevice is a DeviceMemory without memory: it gives out addresses that nothing lies
// behind, keeps count of every granule and stops the program when its user breaks a rule of the
// interface (commits twice, decommits what is not committed, unreserves half a range, leaks). It
// has a capacity, and it can be told to fail, once or from then on, at the Nth call that may fail:
// so every error path of an allocator can be walked without a device and without using memory.
//
// Thread-safe: one lock. Deterministic: the same calls give the same addresses. Nothing it returns
// may be dereferenced.

#ifndef EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_
#define EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/device_memory.h"

namespace ebbtide {

class SimulatedDevice : public DeviceMemory {
 public:
  struct Options {
    Bytes capacity = Bytes(int64_t{16} << 30);
    Bytes granularity = Bytes(int64_t{2} << 20);
    bool partial_decommit = true;
  };

  explicit SimulatedDevice(Options options);
  ~SimulatedDevice() override;  // aborts when ranges are still reserved

  Bytes granularity() const override { return options_.granularity; }
  bool supports_partial_decommit() const override { return options_.partial_decommit; }
  absl::StatusOr<void*> Reserve(Bytes size) override;
  using DeviceMemory::Commit;
  absl::Status Commit(void* address, Bytes size, Bytes piece) override;
  absl::Status Decommit(void* address, Bytes size) override;
  absl::Status Unreserve(void* address, Bytes size) override;
  Bytes capacity() const override { return options_.capacity; }
  bool is_host_accessible() const override { return false; }

  // Makes call number `n` from now (1 is the next) of Reserve, Commit or Decommit fail with
  // ResourceExhausted, and with `for_ever` all later ones too. 0 means never.
  void FailAt(int64_t n, bool for_ever = false);

  // Reserve, Commit and Decommit calls so far, failed ones included.
  int64_t calls() const;

  // Bytes with memory behind them now, and the most there ever were.
  Bytes committed() const;
  Bytes peak_committed() const;

 private:
  struct Range {
    int64_t size = 0;
    std::vector<bool> committed;  // a bit a granule
  };

  bool FailsNow();
  absl::Status CheckArguments(const void* address, Bytes size) const;
  Range& FindRange(uintptr_t address, int64_t size, int64_t* first_granule);
  absl::Status Grow(int64_t bytes);

  const Options options_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, Range> ranges_;
  uintptr_t next_address_;
  int64_t committed_ = 0;
  int64_t peak_committed_ = 0;
  int64_t calls_ = 0;
  int64_t fail_at_ = 0;  // absolute call number, 0 is never
  bool fail_for_ever_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_
