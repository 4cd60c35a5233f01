// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/small_call.h"

#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/tensor_spec.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {

void SmallCall::SeeArgument(const at::Tensor& tensor) {
  if (!tensor.defined() || !unknown_) return;
  c10::StorageImpl* const storage = PlainStorage(tensor);
  if (storage == nullptr) {
    unknown_ = false;
    return;
  }
  if (!HasBytes(*storage)) return;
  bool foreign = true;
  if (BlockHeader* header = HeaderOf(*storage)) {
    if (header->record.load(std::memory_order_acquire) != nullptr) unknown_ = false;
    foreign = !storage->resizable() ||
              (header->flags.load(std::memory_order_relaxed) & kBlockEscaped) != 0;
    if (!foreign) MarkUsed(*header);
  } else if (RecordOfEvicted(*storage) != nullptr) {
    unknown_ = false;
  }
  input_bytes_ += static_cast<int64_t>(storage->nbytes());
  entries_.push_back({storage, foreign});
}

// Calls that only write what has no record are not recorded.
bool SmallCall::MayBeRecorded() const {
  if (!info_.replayable || !info_.makes_outputs) return false;
  return entries_.empty() || manager_.MayMakeLarge(input_bytes_);
}

void SmallCall::SeeResultStorage(c10::StorageImpl& storage) {
  if (!HasBytes(storage)) return;
  for (const Entry& entry : entries_) {
    if (entry.storage == &storage) return;
  }
  BlockHeader* header = HeaderOf(storage);
  if (header == nullptr) return;
  // The storage is new: nobody else changes its flags yet.
  const uint32_t flags = header->flags.load(std::memory_order_relaxed);
  if (!info_.uninitialised) {
    header->flags.store(flags & ~static_cast<uint32_t>(kBlockFresh), std::memory_order_relaxed);
  }
  if ((flags & kBlockEscaped) == 0) Arm(storage);
}

void SmallCall::SeeResult(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  if (c10::StorageImpl* storage = PlainStorage(tensor)) {
    SeeResultStorage(*storage);
  } else {
    VisitStorages(tensor, [this](c10::StorageImpl& part) { SeeResultStorage(part); });
  }
}

void SmallCall::End() {
  for (const Entry& entry : entries_) {
    if (!entry.foreign) Arm(*entry.storage);
  }
  ReleaseOperatorHolds();
}

}  // namespace ebbtide
