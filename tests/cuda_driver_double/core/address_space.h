// SPDX-License-Identifier: Apache-2.0
//
// The addresses of the virtual devices, which lie in this process's own address space: reserved
// ranges, which nobody can touch, and views of physical memory in them. A view can be touched once
// a device has been given access. Every rule that the driver has about ranges is checked here.
//
// Device memory that comes with its addresses (cuMemAlloc), pinned host memory and memory of other
// processes are views as well, in reservations of their own, so that one search tells what lies at
// an address.
//
// Threads: the caller serialises all calls. Ownership: a view shares its physical memory.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ADDRESS_SPACE_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ADDRESS_SPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_driver_double/core/configuration.h"
#include "tests/cuda_driver_double/core/physical_memory.h"
#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

// The numbers are those of the driver's access flags.
enum class Access : int { kNone = 0, kRead = 1, kReadWrite = 3 };

enum class ViewKind {
  kMapped,      // by Map
  kAllocated,   // memory with its addresses
  kPooled,      // likewise, given back in the order of a stream
  kImported,    // memory that another process allocated
  kPinnedHost,  // host memory that every device may access
};

struct View {
  uintptr_t start = 0;
  size_t bytes = 0;  // as asked for; the pages behind it may be more
  ViewKind kind = ViewKind::kMapped;
  std::shared_ptr<PhysicalMemory> memory = nullptr;
  size_t offset = 0;  // into `memory`
  uint64_t id = 0;    // no other view of the process ever has it
  std::array<Access, kDevicesMax> access = {};

  uintptr_t end() const { return start + bytes; }
  int device() const { return memory->device(); }
};

struct Reservation {
  uintptr_t start = 0;
  size_t bytes = 0;
};

// A run of bytes as the core itself can reach them, whatever the views' protection.
struct Segment {
  char* bytes;
  size_t size;
};

inline constexpr int kEveryOwner = -1;

class AddressSpace {
 public:
  AddressSpace(size_t granularity_bytes, bool host_access);
  ~AddressSpace();

  // Addresses for `bytes`, a positive multiple of the page, aligned to `alignment` (0 or a
  // power of two), at `hint` if that is free. Errors: InvalidValue; OutOfMemory.
  Result Reserve(size_t bytes, size_t alignment, uintptr_t hint, uintptr_t* start);

  // Gives back exactly one reservation, without views. Errors: InvalidValue.
  Result FreeReservation(uintptr_t start, size_t bytes);

  // Shows [offset, offset + bytes) of `memory` at `start`, without access for anybody. Errors:
  // InvalidValue for what is misaligned, beyond the memory, or not free inside one reservation.
  Result Map(uintptr_t start, size_t bytes, size_t offset, std::shared_ptr<PhysicalMemory> memory);

  // Takes away the views that make up [start, start + bytes). Errors: InvalidValue unless they are
  // whole, made by Map, and without a gap.
  Result Unmap(uintptr_t start, size_t bytes);

  // Says what `device` may do with the views that make up the range. Errors: as Unmap.
  Result SetAccess(uintptr_t start, size_t bytes, int device, Access access);

  // Makes a view of `bytes` of `memory` in a reservation of its own, which all devices in `devices`
  // may read and write; one page behind it stays unmapped. Errors: OutOfMemory.
  Result Place(ViewKind kind, size_t bytes, std::shared_ptr<PhysicalMemory> memory,
               const std::vector<int>& devices, uintptr_t* start);

  // Says what `device` may do with all that is allocated on `owner`.
  void AllowPeer(int owner, int device, Access access);

  // Takes away what Place made. False when no view of one of these kinds starts there.
  bool Remove(uintptr_t start, std::initializer_list<ViewKind> kinds);

  // The view that holds `address`, or null.
  const View* Find(uintptr_t address) const;

  // The reservation of Reserve that holds `address`, or null.
  const Reservation* FindReservation(uintptr_t address) const;

  // Whether views lie behind the whole range, one after the other.
  bool IsCovered(uintptr_t start, size_t bytes) const;

  // The bytes behind a range that `device` accesses; kEveryOwner stands for each piece's own
  // device. Errors: IllegalAddress when one of them has no view, or the device no such access.
  Result Resolve(uintptr_t start, size_t bytes, int device, Access wanted,
                 std::vector<Segment>* segments) const;

  const std::map<uintptr_t, View>& views() const { return views_; }
  size_t CountViews(ViewKind kind) const;
  size_t CountReservations() const { return reservations_.size(); }
  size_t granularity() const { return granularity_; }

 private:
  using Views = std::map<uintptr_t, View>;

  // The views that make up the range exactly: [first, last). Empty when there are none such.
  std::pair<Views::iterator, Views::iterator> WholeViews(uintptr_t start, size_t bytes);
  bool Protect(const View& view) const;
  void Cover(uintptr_t start, size_t bytes) const;

  const size_t granularity_;
  const bool host_access_;
  uint64_t last_view_ = 0;
  Views views_;
  std::map<uintptr_t, Reservation> reservations_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ADDRESS_SPACE_H_
