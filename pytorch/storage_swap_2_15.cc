// SPDX-License-Identifier: Apache-2.0
//
// The tripwire for torch 2.13 and later: the materializer that each storage has a place for.
#include <c10/core/StorageImpl.h>

#include "pytorch/storage_swap.h"
#include "pytorch/storage_swap_internal.h"

namespace ebbtide {

namespace internal {
namespace {

void Materialize(c10::StorageImpl* storage) { HandleMutableAccess(*storage); }

}  // namespace

void SetTripwire(c10::StorageImpl& storage, BlockHeader*) {
  // torch refuses a second one. Of a storage that is ours, the first can only be this same
  // function.
  if (!storage.has_materializer()) storage.set_materializer(&Materialize);
}

void ClearTripwire(c10::StorageImpl& storage, BlockHeader*) {
  if (storage.has_materializer()) storage.clear_materializer();
}

bool HasTripwire(const c10::StorageImpl& storage) { return storage.has_materializer(); }

}  // namespace internal

CowHandlers GetCowHandlers() {
  return {nullptr, nullptr, &internal::BeforeLazyClone, &internal::BeforeTensorAccess};
}

}  // namespace ebbtide
