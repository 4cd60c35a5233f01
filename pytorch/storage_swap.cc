// SPDX-License-Identifier: Apache-2.0
#include "pytorch/storage_swap.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "base/check.h"
#include "pytorch/access_classifier.h"
#include "pytorch/cpu_allocator.h"
#include "pytorch/storage_swap_internal.h"

namespace ebbtide {

namespace internal {
constinit thread_local int operator_depth __attribute__((tls_model("initial-exec"))) = 0;
}  // namespace internal

namespace {

SwapCallbacks g_callbacks{nullptr, nullptr, nullptr};
int (*g_on_compute_worker)() = nullptr;

// The data pointer as it is. The accessor with checks is not const, though it changes nothing.
const c10::DataPtr& RawDataPtr(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

bool OwnsBlock(const c10::DataPtr& data) {
  return data.get_deleter() == &ReleaseCpuBlock && data.get() != nullptr &&
         data.get() == data.get_context();
}

bool BelongsToOperator() {
  return InOperator() || (g_on_compute_worker != nullptr && g_on_compute_worker() != 0);
}

AccessKind KindOf(Caller caller) {
  return caller == Caller::kKernel ? AccessKind::kKernelCall : AccessKind::kEscape;
}

void Touch(c10::StorageImpl& storage, AccessKind kind) {
  g_callbacks.on_touch(storage, kind);
  TORCH_CHECK(RecordOfEvicted(storage) == nullptr,
              "ebbtide: an evicted tensor was not brought back before its memory was used");
}

}  // namespace

void InstallSwapCallbacks(const SwapCallbacks& callbacks) { g_callbacks = callbacks; }

void SetComputeWorkerTest(int (*on_compute_worker)()) { g_on_compute_worker = on_compute_worker; }

BlockHeader* HeaderOf(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = RawDataPtr(storage);
  return OwnsBlock(data) ? HeaderOfPayload(data.get()) : nullptr;
}

void* RecordOfEvicted(const c10::StorageImpl& storage) {
  return RawDataPtr(storage).cast_context<void>(&internal::EvictedGone);
}

void* TakeMemory(c10::StorageImpl& storage, void* record) {
  EBB_CHECK(record != nullptr) << "an evicted storage needs a record";
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  EBB_CHECK(OwnsBlock(data)) << "only resident storages of ours can be evicted";
  Disarm(storage);
  void* payload = data.release_context();
  data = c10::DataPtr(nullptr, record, &internal::EvictedGone, data.device());
  internal::SetTripwire(storage, nullptr);
  return payload;
}

void GiveMemory(c10::StorageImpl& storage, void* payload) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  EBB_CHECK(RecordOfEvicted(storage) != nullptr) << "only an evicted storage can be given memory";
  (void)data.release_context();
  data = MakeCpuDataPtr(payload);
  internal::ClearTripwire(storage, HeaderOfPayload(payload));
}

void Arm(c10::StorageImpl& storage) {
  BlockHeader* header = HeaderOf(storage);
  if (header == nullptr || internal::HasTripwire(storage)) return;
  internal::SetTripwire(storage, header);
}

void Disarm(c10::StorageImpl& storage) {
  BlockHeader* header = HeaderOf(storage);
  if (header == nullptr) return;
  internal::ClearTripwire(storage, header);
}

bool IsArmed(const c10::StorageImpl& storage) {
  return HeaderOf(storage) != nullptr && internal::HasTripwire(storage);
}

namespace internal {

void EvictedGone(void* record) {
  if (record != nullptr) g_callbacks.on_evicted_gone(record);
}

void HandleMutableAccess(c10::StorageImpl& storage) {
  if (RecordOfEvicted(storage) != nullptr) {
    Touch(storage, BelongsToOperator() ? AccessKind::kInOperator : KindOf(ClassifyCaller()));
    return;
  }
  BlockHeader* header = HeaderOf(storage);
  // Null: the storage has got other memory since it was armed.
  if (header == nullptr || BelongsToOperator()) return;
  const Caller caller = ClassifyCaller();
  const bool fresh = (header->flags.load(std::memory_order_relaxed) & kBlockFresh) != 0;
  g_callbacks.on_escape(storage, *header,
                        fresh && caller == Caller::kTorch ? AccessKind::kFill : KindOf(caller));
}

void BeforeLazyClone(void* storage_impl) {
  auto& storage = *static_cast<c10::StorageImpl*>(storage_impl);
  if (RecordOfEvicted(storage) != nullptr) {
    Touch(storage, BelongsToOperator() ? AccessKind::kInOperator : AccessKind::kEscape);
  }
  Disarm(storage);
}

void BeforeTensorAccess(const void* tensor, int is_mutable) {
  // An at::Tensor is one pointer.
  const auto* impl = *static_cast<c10::TensorImpl* const*>(tensor);
  if (impl == nullptr || !impl->has_storage()) return;
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  const bool evicted = RecordOfEvicted(storage) != nullptr;
  // A mutable access to a resident storage springs the tripwire by itself.
  if (!evicted && (is_mutable != 0 || BelongsToOperator() || !IsArmed(storage))) return;
  if (BelongsToOperator()) return Touch(storage, AccessKind::kInOperator);
  const Caller caller = ClassifyCaller();
  // torch itself keeps no const pointer beyond the call that asks for it.
  const bool passing = is_mutable == 0 && caller == Caller::kTorch;
  const AccessKind kind = passing ? AccessKind::kKernelCall : KindOf(caller);
  if (evicted) return Touch(storage, kind);
  if (passing) return;
  Disarm(storage);
  if (BlockHeader* header = HeaderOf(storage)) g_callbacks.on_escape(storage, *header, kind);
}

}  // namespace internal
}  // namespace ebbtide
