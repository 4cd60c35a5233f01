// SPDX-License-Identifier: Apache-2.0
//
// CheckStorageSwap: does this process's torch do what storage_swap.h relies on?
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstring>

#include "absl/status/status.h"
#include "pytorch/cpu_allocator.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

constexpr size_t kBytes = 256;

// What the callbacks of the check see. One thread, at start-up.
struct Seen {
  int touches = 0;
  int escapes = 0;
  int gone = 0;
  void* payload = nullptr;
};
Seen* g_seen = nullptr;

void OnTouch(c10::StorageImpl& storage, AccessKind) {
  ++g_seen->touches;
  GiveMemory(storage, g_seen->payload);
}
void OnEscape(c10::StorageImpl&, BlockHeader&, AccessKind) { ++g_seen->escapes; }
void OnGone(void*) { ++g_seen->gone; }

c10::intrusive_ptr<c10::StorageImpl> MakeStorage() {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), kBytes,
                                               c10::GetAllocator(c10::DeviceType::CPU),
                                               /*resizable=*/true);
}

absl::Status Check(Seen& seen) {
  auto storage = MakeStorage();
  if (HeaderOf(*storage) == nullptr)
    return absl::FailedPreconditionError("torch does not use our CPU allocator");
  std::memset(storage->mutable_data(), 0x5a, kBytes);
  if (seen.escapes != 0) return absl::InternalError("a storage that is not armed reports accesses");

  Arm(*storage);
  const void* address = storage->data();
  if (seen.escapes != 0 || storage->mutable_data() != address || seen.escapes != 1 ||
      IsArmed(*storage)) {
    return absl::InternalError("a mutable access to an armed storage is not noticed once");
  }
  {
    const OperatorScope scope;
    Arm(*storage);
    storage->mutable_data();
  }
  if (seen.escapes != 1)
    return absl::InternalError("an access inside an operator counts as one outside");

  seen.payload = TakeMemory(*storage, &seen);
  if (storage->data() != nullptr || storage->nbytes() != kBytes ||
      RecordOfEvicted(*storage) != &seen) {
    return absl::InternalError("an evicted storage does not look evicted");
  }
  if (storage->mutable_data() != address || seen.touches != 1 || seen.gone != 0) {
    return absl::InternalError("a mutable access to an evicted storage is not noticed");
  }
  void* payload = TakeMemory(*storage, &seen);
  storage.reset();
  ReleaseCpuBlock(payload);
  if (seen.gone != 1) return absl::InternalError("the death of an evicted storage is not noticed");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStorageSwap() {
  Seen seen;
  g_seen = &seen;
  InstallSwapCallbacks({&OnTouch, &OnEscape, &OnGone});
  absl::Status status = Check(seen);
  InstallSwapCallbacks({nullptr, nullptr, nullptr});
  g_seen = nullptr;
  return status;
}

}  // namespace ebbtide
