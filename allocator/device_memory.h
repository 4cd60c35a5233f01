// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemory is where memory comes from: it hands out address ranges and puts physical memory
// behind them. The caching allocator is written against this interface alone, so that host memory,
// a GPU and a simulated device are interchangeable.
//
// An implementation is of one of two kinds:
//
//   with partial decommit     Reserve gives addresses without memory behind them; Commit and
//                             Decommit put memory behind any run of whole granules and take it
//                             away.
//   without partial decommit  Reserve gives addresses with memory behind all of them; the only way
//                             to give memory back is Unreserve. Commit and Decommit are errors.
//
// Thread safety: every function may be called from any thread at any time, but the caller keeps two
// calls from working on the same granule at once. Ownership: the caller owns what it reserved until
// Unreserve; an implementation may outlive none of its ranges. To replace: derive, then instantiate
// tests/allocator/device_memory_conformance.h with your class.

#ifndef EBBTIDE_ALLOCATOR_DEVICE_MEMORY_H_
#define EBBTIDE_ALLOCATOR_DEVICE_MEMORY_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace ebbtide {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // The unit of memory: a power of two, at least 4 KiB. Every size and address given to the
  // functions below is a multiple of it, and so is every address that Reserve returns.
  virtual Bytes granularity() const = 0;

  // The unit in which the device moves memory fastest: a multiple of granularity(), for example the
  // huge page of a processor. Callers prefer to commit and decommit whole aligned units of it.
  virtual Bytes preferred_unit() const { return granularity(); }

  // The size of the pieces in which memory for a large request is best obtained: a multiple of
  // granularity(). A device whose calls cost the same for a large piece as for a small one names
  // one here; for all others it is granularity(). Larger pieces come and go only as a whole.
  virtual Bytes large_piece() const { return granularity(); }

  // Which of the two kinds this device is.
  virtual bool supports_partial_decommit() const = 0;

  // Reserves `size` bytes of addresses (a positive multiple of granularity()).
  // Errors: ResourceExhausted when the addresses, or without partial decommit the memory, are not
  // there; InvalidArgument for a size that is no positive multiple of granularity().
  virtual absl::StatusOr<void*> Reserve(Bytes size) = 0;

  // Puts memory behind [address, address + size), all of it reserved and none of it committed, in
  // pieces of `piece` bytes (a multiple of granularity() that divides `size`). Its content is
  // undefined. On error nothing has changed.
  // Errors: ResourceExhausted when the device has no more; InvalidArgument for misaligned
  // arguments; Unimplemented without partial decommit.
  virtual absl::Status Commit(void* address, Bytes size, Bytes piece) = 0;
  absl::Status Commit(void* address, Bytes size) { return Commit(address, size, granularity()); }

  // Gives the memory behind [address, address + size), all of it committed, back to the device. The
  // addresses stay reserved. REQUIRES: the range is made of whole pieces. On error the range counts
  // as still committed.
  // Errors: InvalidArgument for misaligned arguments; Unimplemented without partial decommit.
  virtual absl::Status Decommit(void* address, Bytes size) = 0;

  // True when Move is cheaper than Decommit and Commit.
  virtual bool supports_move() const { return false; }

  // Moves the memory behind [from, from + size), whole pieces, to [to, to + size), which is
  // reserved and not committed: nothing is obtained or given back. The pieces keep their size and
  // order; their content at `to` is undefined. On error nothing has changed.
  // Errors: InvalidArgument for misaligned arguments; Unimplemented unless supports_move().
  virtual absl::Status Move(void* /*from*/, void* /*to*/, Bytes /*size*/) {
    return absl::UnimplementedError("this device cannot move memory");
  }

  // Gives a whole range that Reserve returned back, with whatever is committed in it.
  // REQUIRES: exactly the address and size of one Reserve.
  virtual absl::Status Unreserve(void* address, Bytes size) = 0;

  // How much memory the device has in all.
  virtual Bytes capacity() const = 0;

  // Memory that the device keeps for itself beyond what is committed, to give it out faster.
  virtual Bytes retained() const { return Bytes(0); }

  // Bounds that, for a budget that holds for both: `room` says how much may be obtained beyond what
  // its owner counts as committed (negative: more is committed than the budget allows), where a
  // Commit counts from before its call and a Decommit or an Unreserve until after it. It is asked
  // whenever the device would obtain or keep memory, and must be safe on any thread and take no
  // lock. Null: nothing but the device's own limit. A device that retains memory has one such owner
  // at a time.
  using Room = std::function<Bytes()>;
  virtual void BoundRetained(Room /*room*/) {}

  // Gives up what is retained. Errors: the driver's, when it refuses some.
  virtual absl::Status ReleaseRetained() { return absl::OkStatus(); }

  // True when the bytes at committed addresses can be read and written by this process.
  virtual bool is_host_accessible() const = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_DEVICE_MEMORY_H_
