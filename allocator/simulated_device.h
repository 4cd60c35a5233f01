// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDevice is a DeviceMemory without a device. It knows every piece of memory that it gave
// out and stops the program when its user breaks a rule of the interface: commits twice, takes back
// what is not committed or a part of a piece, unreserves half a range, leaks. Its clock tells what
// a driver would have taken for the calls, any call can be told to fail, and its capacity is what
// you like. So every path of an allocator can be walked, and its cost in driver calls compared, on
// any machine.
//
// By default addresses have no bytes behind them and are the same in every run; nothing may be
// dereferenced. With Options::with_bytes there are bytes, at addresses that the system chooses.
//
// Whoever knows what memory is in use, such as SimulatedStreams (queued work) or BlockChecker (live
// blocks), watches the device and stops the program when such memory is taken away.
//
// Thread-safe: one lock, under which watchers are called. It must outlive who watches it. To
// replace: it replaces others; see device_memory.h.

#ifndef EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_
#define EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "allocator/device_memory.h"
#include "allocator/driver_latency.h"
#include "allocator/failure_injector.h"
#include "allocator/piece_map.h"
#include "allocator/virtual_clock.h"

namespace ebbtide {

// Is told before memory goes. Must not call the device.
class MemoryWatcher {
 public:
  virtual ~MemoryWatcher() = default;

  // [begin, end) is about to be given back or moved away. Stops the program when it is in use.
  virtual void BeforeTaking(uintptr_t begin, uintptr_t end) = 0;
};

class SimulatedDevice : public DeviceMemory {
 public:
  struct Options {
    Bytes capacity = Bytes(int64_t{16} << 30);
    Bytes granularity = Bytes(int64_t{2} << 20);
    Bytes large_piece = Bytes(0);  // a multiple of granularity; 0 is granularity
    bool partial_decommit = true;
    bool move = false;        // only with partial_decommit
    bool with_bytes = false;  // only with granularity from the processor's page to 2 MiB
    DriverLatency latency = DriverLatency::None();
  };

  explicit SimulatedDevice(Options options);
  ~SimulatedDevice() override;  // aborts when ranges are still reserved or somebody still watches

  Bytes granularity() const override { return options_.granularity; }
  Bytes large_piece() const override { return options_.large_piece; }
  bool supports_partial_decommit() const override { return options_.partial_decommit; }
  bool supports_move() const override { return options_.move; }
  absl::StatusOr<void*> Reserve(Bytes size) override;
  using DeviceMemory::Commit;
  absl::Status Commit(void* address, Bytes size, Bytes piece) override;
  absl::Status Decommit(void* address, Bytes size) override;
  absl::Status Move(void* from, void* to, Bytes size) override;
  absl::Status Unreserve(void* address, Bytes size) override;
  Bytes capacity() const override { return options_.capacity; }
  bool is_host_accessible() const override { return options_.with_bytes; }

  // Which calls fail, and how many there were. Calls with arguments that the interface answers with
  // InvalidArgument or Unimplemented are not counted.
  FailureInjector* failures() { return &failures_; }
  void FailAt(int64_t n, bool for_ever = false) { failures_.FailAt(n, for_ever); }
  int64_t calls() const { return failures_.calls(); }

  // The time of this machine. Successful calls advance it by what Options::latency says; without
  // partial decommit a range is one piece. Calls that fail are free.
  VirtualClock* clock() { return &clock_; }
  Nanos now() const { return clock_.now(); }

  // What all calls have taken together: their part of now().
  Nanos driver_time() const;

  // Bytes with memory behind them now, and the most there ever were.
  Bytes committed() const;
  Bytes peak_committed() const;

  // True when all of [address, address + size) has memory behind it.
  bool IsCommitted(const void* address, Bytes size) const;

  // `watcher` is asked from now until Unwatch. The caller keeps it.
  void Watch(MemoryWatcher* watcher);
  void Unwatch(MemoryWatcher* watcher);

 private:
  absl::Status CheckArguments(const void* address, Bytes size) const;
  void CheckReserved(uintptr_t address, int64_t size) const;
  void CheckWholePieces(uintptr_t begin, uintptr_t end) const;
  absl::StatusOr<uintptr_t> FindAddresses(int64_t size);
  absl::Status CheckRoom(int64_t bytes) const;
  void Grow(int64_t bytes);
  void Charge(Nanos duration);
  void TellWatchers(uintptr_t begin, uintptr_t end);

  const Options options_;
  const std::unique_ptr<DeviceMemory> bytes_;  // what lies behind the addresses, or null
  FailureInjector failures_;
  VirtualClock clock_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<MemoryWatcher*> watchers_;
  std::map<uintptr_t, int64_t> ranges_;  // sizes
  PieceMap pieces_;
  uintptr_t next_address_;
  int64_t committed_ = 0;
  int64_t peak_committed_ = 0;
  Nanos driver_time_{0};
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SIMULATED_DEVICE_H_
