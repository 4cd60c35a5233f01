// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "tests/cuda_driver_double/core/pages.h"

namespace ebbtide::hollow {

AddressSpace::AddressSpace(size_t granularity_bytes, bool host_access)
    : granularity_(granularity_bytes), host_access_(host_access) {}

AddressSpace::~AddressSpace() {
  for (const auto& [start, view] : views_) {
    if (view.kind != ViewKind::kMapped) ReleaseAddresses(start, PlacedBytes(view.bytes));
  }
  for (const auto& [start, range] : reservations_) ReleaseAddresses(start, range.bytes);
}

Result AddressSpace::Reserve(size_t bytes, size_t alignment, uintptr_t hint, uintptr_t* start) {
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  if (bytes == 0 || bytes % kPageBytes != 0 || !power_of_two) return Result::kInvalidValue;
  *start = ReserveAddresses(bytes, std::max(alignment, granularity_), hint);
  if (*start == 0) return Result::kOutOfMemory;
  reservations_[*start] = {*start, bytes};
  return Result::kSuccess;
}

Result AddressSpace::FreeReservation(uintptr_t start, size_t bytes) {
  const auto range = reservations_.find(start);
  if (range == reservations_.end() || range->second.bytes != bytes) return Result::kInvalidValue;
  const auto view = views_.lower_bound(start);
  if (view != views_.end() && view->first < start + bytes) return Result::kInvalidValue;
  ReleaseAddresses(start, bytes);
  reservations_.erase(range);
  return Result::kSuccess;
}

Result AddressSpace::Map(uintptr_t start, size_t bytes, size_t offset,
                         std::shared_ptr<PhysicalMemory> memory) {
  if (bytes == 0 || (start | bytes | offset) % granularity_ != 0) return Result::kInvalidValue;
  if (offset > memory->size() || bytes > memory->size() - offset) return Result::kInvalidValue;
  const Reservation* range = FindReservation(start);
  if (range == nullptr || bytes > range->start + range->bytes - start) return Result::kInvalidValue;
  const auto next = views_.lower_bound(start);
  if (next != views_.end() && next->first < start + bytes) return Result::kInvalidValue;
  if (next != views_.begin() && std::prev(next)->second.end() > start) return Result::kInvalidValue;
  if (!memory->ShowAt(start, offset, bytes)) {
    Cover(start, bytes);
    return Result::kOutOfMemory;
  }
  views_[start] = {.start = start,
                   .bytes = bytes,
                   .kind = ViewKind::kMapped,
                   .memory = std::move(memory),
                   .offset = offset,
                   .id = ++last_view_};
  return Result::kSuccess;
}

Result AddressSpace::Unmap(uintptr_t start, size_t bytes) {
  const auto [first, last] = WholeViews(start, bytes);
  if (first == last) return Result::kInvalidValue;
  Cover(start, bytes);
  views_.erase(first, last);
  return Result::kSuccess;
}

Result AddressSpace::SetAccess(uintptr_t start, size_t bytes, int device, Access access) {
  const auto [first, last] = WholeViews(start, bytes);
  if (first == last) return Result::kInvalidValue;
  for (auto view = first; view != last; ++view) {
    view->second.access[device] = access;
    if (!Protect(view->second)) return Result::kOutOfMemory;
  }
  return Result::kSuccess;
}

Result AddressSpace::Place(ViewKind kind, size_t bytes, std::shared_ptr<PhysicalMemory> memory,
                           const std::vector<int>& devices, uintptr_t* start) {
  *start = ReserveAddresses(PlacedBytes(bytes), kPageBytes, 0);
  if (*start == 0) return Result::kOutOfMemory;
  View view{.start = *start, .bytes = bytes, .kind = kind, .memory = std::move(memory)};
  view.id = ++last_view_;
  for (int device : devices) view.access[device] = Access::kReadWrite;
  if (!view.memory->ShowAt(*start, 0, PageRoundUp(bytes)) || !Protect(view)) {
    ReleaseAddresses(*start, PlacedBytes(bytes));
    return Result::kOutOfMemory;
  }
  views_[*start] = std::move(view);
  return Result::kSuccess;
}

void AddressSpace::AllowPeer(int owner, int device, Access access) {
  for (auto& [start, view] : views_) {
    const bool placed = view.kind == ViewKind::kAllocated || view.kind == ViewKind::kPooled;
    if (placed && view.device() == owner) view.access[device] = access;
  }
}

bool AddressSpace::Remove(uintptr_t start, std::initializer_list<ViewKind> kinds) {
  const auto view = views_.find(start);
  if (view == views_.end()) return false;
  if (std::find(kinds.begin(), kinds.end(), view->second.kind) == kinds.end()) return false;
  ReleaseAddresses(start, PlacedBytes(view->second.bytes));
  views_.erase(view);
  return true;
}

const View* AddressSpace::Find(uintptr_t address) const {
  const auto next = views_.upper_bound(address);
  if (next == views_.begin()) return nullptr;
  const View& view = std::prev(next)->second;
  return address < view.end() ? &view : nullptr;
}

const Reservation* AddressSpace::FindReservation(uintptr_t address) const {
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return nullptr;
  const Reservation& range = std::prev(next)->second;
  return address < range.start + range.bytes ? &range : nullptr;
}

bool AddressSpace::IsCovered(uintptr_t start, size_t bytes) const {
  while (bytes > 0) {
    const View* view = Find(start);
    if (view == nullptr) return false;
    const size_t here = std::min(bytes, view->end() - start);
    start += here;
    bytes -= here;
  }
  return true;
}

Result AddressSpace::Resolve(uintptr_t start, size_t bytes, int device, Access wanted,
                             std::vector<Segment>* segments) const {
  while (bytes > 0) {
    const View* view = Find(start);
    if (view == nullptr) return Result::kIllegalAddress;
    const int who = device != kEveryOwner ? device : std::max(view->device(), 0);
    if (view->access[who] < wanted) return Result::kIllegalAddress;
    const size_t here = std::min(bytes, view->end() - start);
    segments->push_back({view->memory->bytes() + view->offset + (start - view->start), here});
    start += here;
    bytes -= here;
  }
  return Result::kSuccess;
}

size_t AddressSpace::CountViews(ViewKind kind) const {
  return std::count_if(views_.begin(), views_.end(),
                       [kind](const auto& entry) { return entry.second.kind == kind; });
}

std::pair<AddressSpace::Views::iterator, AddressSpace::Views::iterator> AddressSpace::WholeViews(
    uintptr_t start, size_t bytes) {
  const auto first = views_.find(start);
  auto last = first;
  uintptr_t reached = start;
  while (last != views_.end() && last->first == reached && reached < start + bytes &&
         last->second.kind == ViewKind::kMapped) {
    reached = last->second.end();
    ++last;
  }
  if (reached != start + bytes) return {views_.end(), views_.end()};
  return {first, last};
}

bool AddressSpace::Protect(const View& view) const {
  Access widest = Access::kNone;
  for (Access access : view.access) widest = std::max(widest, access);
  // The processor must reach pinned memory whatever the devices' memory is to it.
  if (!host_access_ && view.kind != ViewKind::kPinnedHost) widest = Access::kNone;
  const int protection = widest == Access::kReadWrite ? PROT_READ | PROT_WRITE
                         : widest == Access::kRead    ? PROT_READ
                                                      : PROT_NONE;
  void* address = reinterpret_cast<void*>(view.start);
  return mprotect(address, PageRoundUp(view.bytes), protection) == 0;
}

void AddressSpace::Cover(uintptr_t start, size_t bytes) const {
  EBB_CHECK(CoverAddresses(start, bytes)) << "the system cannot take a view away";
}

}  // namespace ebbtide::hollow
