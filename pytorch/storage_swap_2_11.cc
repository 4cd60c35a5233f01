// SPDX-License-Identifier: Apache-2.0
//
// The tripwire for torch up to 2.12: the copy-on-write check. A storage with
// has_mutable_data_ptr_check_ set asks c10::impl::cow::is_cow_data_ptr and, if so,
// materialize_cow_storage before it hands out a mutable pointer; the preload shim sends both
// questions here first.
#include <c10/core/StorageImpl.h>

#include "pytorch/cpu_allocator.h"
#include "pytorch/storage_swap.h"
#include "pytorch/storage_swap_internal.h"

namespace ebbtide {

namespace internal {
namespace {

// torch computes the flag from IsCow and its own other checks whenever the data pointer changes.
// The function that does so is private; an explicit instantiation may name a private member, and
// the friend function hands it out.
template <void (c10::StorageImpl::*kMember)()>
struct RefreshAccess {
  friend void RefreshCheckFlag(c10::StorageImpl& storage) { (storage.*kMember)(); }
};
void RefreshCheckFlag(c10::StorageImpl& storage);
template struct RefreshAccess<&c10::StorageImpl::refresh_has_data_ptr_check>;

bool IsArmedBlock(const c10::DataPtr& data) {
  return data.get_deleter() == &ReleaseCpuBlock && data.get() != nullptr &&
         (HeaderOfPayload(data.get())->flags.load(std::memory_order_relaxed) & kBlockArmed) != 0;
}

int IsCow(const void* data_ptr) {
  const auto& data = *static_cast<const c10::DataPtr*>(data_ptr);
  if (data.get_deleter() == &EvictedGone) return 1;
  if (data.get_deleter() == &ReleaseCpuBlock) return IsArmedBlock(data) ? 1 : 0;
  return -1;
}

int MaterializeCow(void* storage_impl) {
  auto& storage = *static_cast<c10::StorageImpl*>(storage_impl);
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  if (deleter != &EvictedGone && deleter != &ReleaseCpuBlock) return 0;
  HandleMutableAccess(storage);
  if (deleter == &EvictedGone) {
    // Whoever brought it back has decided whether it is armed.
    RefreshCheckFlag(storage);
  } else {
    ClearTripwire(storage, HeaderOf(storage));
  }
  return 1;
}

}  // namespace

// Without a header, what IsCow says has changed already, with the data pointer.
void SetTripwire(c10::StorageImpl& storage, BlockHeader* header) {
  if (header != nullptr) header->flags.fetch_or(kBlockArmed, std::memory_order_relaxed);
  RefreshCheckFlag(storage);
}

void ClearTripwire(c10::StorageImpl& storage, BlockHeader* header) {
  constexpr auto kNotArmed = ~static_cast<uint32_t>(kBlockArmed);
  if (header != nullptr) header->flags.fetch_and(kNotArmed, std::memory_order_relaxed);
  RefreshCheckFlag(storage);
}

bool HasTripwire(const c10::StorageImpl& storage) {
  auto& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  return data.get_deleter() == &EvictedGone || IsArmedBlock(data);
}

}  // namespace internal

CowHandlers GetCowHandlers() {
  return {&internal::IsCow, &internal::MaterializeCow, &internal::BeforeLazyClone,
          &internal::BeforeTensorAccess};
}

}  // namespace ebbtide
