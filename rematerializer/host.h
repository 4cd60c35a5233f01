// SPDX-License-Identifier: Apache-2.0
//
// Host: the framework whose tensors Ebbtide manages, as far as carrying out a decision needs it:
// memory for private copies, and the exchange of a storage's memory under the program's feet.
//
// A memory address that crosses this interface is one that the host handed out for a storage of the
// given size; AllocateMemory's results are of the same kind and can be given to a storage.
//
// Threads: AllocateMemory, FreeMemory and CopyMemory are called without any lock of the runtime
// held and may be called from several threads at once (AllocateMemory may come back through the
// pressure handler). TakeMemory and GiveMemory are called under the runtime's mutex and must not
// call back. Ownership: the runtime does not own the host; the host outlives it.

#ifndef EBBTIDE_REMATERIALIZER_HOST_H_
#define EBBTIDE_REMATERIALIZER_HOST_H_

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace ebbtide {

class Host {
 public:
  virtual ~Host() = default;

  // ResourceExhausted if there is none within the budget.
  virtual absl::StatusOr<void*> AllocateMemory(Bytes bytes) = 0;
  virtual void FreeMemory(void* memory) = 0;
  virtual void CopyMemory(void* to, const void* from, Bytes bytes) = 0;

  // Takes the memory away from the host's storage (Storage::host), which stays alive without any.
  // Returns the memory, or null if this storage cannot be evicted now (it is being destroyed, or
  // the framework holds its address): then nothing changed.
  virtual void* TakeMemory(void* host_storage) = 0;

  // Gives memory back to a storage without any. False if the storage is being destroyed: then the
  // memory stays the caller's.
  virtual bool GiveMemory(void* host_storage, void* memory) = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_REMATERIALIZER_HOST_H_
