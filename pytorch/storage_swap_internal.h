// SPDX-License-Identifier: Apache-2.0
//
// Between storage_swap.cc, which is the same for all torch versions, and the one
// storage_swap_<version>.cc that is built with it. Not for others. Threads and ownership as in
// storage_swap.h.
#ifndef EBBTIDE_PYTORCH_STORAGE_SWAP_INTERNAL_H_
#define EBBTIDE_PYTORCH_STORAGE_SWAP_INTERNAL_H_

#include <c10/core/StorageImpl.h>

#include "pytorch/block_header.h"
#include "pytorch/storage_swap.h"

namespace ebbtide::internal {

// The deleter of an evicted storage's data pointer; the context is the record.
void EvictedGone(void* record);

// Version's part: makes torch call HandleMutableAccess before the next mutable pointer is handed
// out, or no longer. The storage's data pointer is already what it shall be; `header` is that of
// its block, null if it has none. Keeping kBlockArmed, where it is needed, is the version's part
// too.
void SetTripwire(c10::StorageImpl& storage, BlockHeader* header);
void ClearTripwire(c10::StorageImpl& storage, BlockHeader* header);
bool HasTripwire(const c10::StorageImpl& storage);

// What a tripwire does. The version's part clears it afterwards; if this throws it stays set.
void HandleMutableAccess(c10::StorageImpl& storage);

// The handlers of CowHandlers that all versions have.
void BeforeLazyClone(void* storage_impl);
void BeforeTensorAccess(const void* tensor, int is_mutable);

}  // namespace ebbtide::internal

#endif  // EBBTIDE_PYTORCH_STORAGE_SWAP_INTERNAL_H_
