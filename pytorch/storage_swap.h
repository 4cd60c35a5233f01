// SPDX-License-Identifier: Apache-2.0
//
// Everything that touches the insides of a c10::StorageImpl: taking its memory away while it
// stays alive, giving it back, and noticing that somebody asks for its mutable pointer. It is the
// only code of the adapter that differs between torch versions; this header is the same for all
// of them.
//
//   * A storage is ours if its memory came from our allocator (cpu_allocator.h): its data pointer
//     then has our deleter and equals its own context, and a BlockHeader stands before it.
//   * An evicted storage keeps its size and device. Its data pointer is null, with the caller's
//     record as context and a deleter of ours, so that nothing has to be looked up and the
//     storage's death is noticed.
//   * A mutable access (mutable_data_ptr(), data_ptr<T>(), and so Tensor.data_ptr(), numpy(),
//     DLPack, the code of C++ extensions and of compiled kernels) to an evicted storage calls
//     `on_touch` before the pointer is handed out; to a resident storage that is armed, outside
//     of any operator, `on_escape`. Inside an operator an armed storage only loses its arming:
//     the kernel's own accesses are known from the operator's arguments.
//   * A const access: torch tells nobody. Typed ones (const_data_ptr<T>()) are met in the shim: an
//     evicted storage is brought back by `on_touch`; one that is armed and resident calls
//     `on_escape` if the caller is not torch itself. Untyped ones see null on an evicted storage.
//     Python's const readers are covered by python_hooks.h; operators by bringing back their
//     arguments first.
//
// How: torch 2.13 and later call a materializer that can be set on each storage. Earlier ones
// have a copy-on-write check at the same place, whose two functions the preload shim replaces
// (CowHandlers below); they ask us first and call torch's own for every storage that is not ours.
// Storages that torch itself made copy-on-write are never ours.
//
// Threads: reads (HeaderOf, RecordOfEvicted, IsArmed) are lock free. TakeMemory, GiveMemory, Arm
// and Disarm on one storage must not run at the same time as each other: callers hold their own
// lock for the storage. Callbacks run on the thread that accesses the storage, with none of our
// locks held; they may throw, and the access then throws. Ownership: no reference to a storage is
// kept. To support another torch version, implement the functions of this header for it, and run
// CheckStorageSwap.
#ifndef EBBTIDE_PYTORCH_STORAGE_SWAP_H_
#define EBBTIDE_PYTORCH_STORAGE_SWAP_H_

#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "absl/status/status.h"
#include "pytorch/block_header.h"

namespace ebbtide {

// What a mutable pointer is wanted for, and so how long the memory must stay where it is.
enum class AccessKind {
  // Inside an operator, but the storage was evicted: it is not among the operator's arguments
  // (memory that an operator reaches through an object). Keep it at least until the operator
  // ends.
  kInOperator,
  // torch's own bindings fill an uninitialised block that no operator has used
  // (torch.tensor([...])). Not an escape: keep the block until an operator uses it. Its content
  // is then a source, which no call can rebuild.
  kFill,
  // A kernel made by torch.compile takes the pointers of its arguments and runs at once. Keep it
  // until the next operator on this thread.
  kKernelCall,
  // The pointer has left our sight: keep the memory where it is for the rest of the storage's
  // life.
  kEscape,
};

struct SwapCallbacks {
  // The storage was evicted when it was accessed. Must have called GiveMemory when it returns
  // (another thread may have done it in between: look at RecordOfEvicted under the lock), or
  // throw. `kind` is never kFill.
  void (*on_touch)(c10::StorageImpl& storage, AccessKind kind);
  // The armed, resident storage was accessed outside of any operator. It is no longer armed
  // afterwards. `kind` is never kInOperator. Must not arm the storage.
  void (*on_escape)(c10::StorageImpl& storage, BlockHeader& header, AccessKind kind);
  // The storage died, or dropped its data for other memory, while evicted. Runs in destructors:
  // must not throw.
  void (*on_evicted_gone)(void* record);
};

// Sets the callbacks. Once, before the first TakeMemory or Arm.
void InstallSwapCallbacks(const SwapCallbacks& callbacks);

// The header of a resident storage of ours; null for evicted, empty and foreign ones. O(1).
BlockHeader* HeaderOf(const c10::StorageImpl& storage);

// The record that TakeMemory was given, if the storage is evicted now; else null. O(1).
void* RecordOfEvicted(const c10::StorageImpl& storage);

// Evicts: the caller now owns the returned payload (release it with ReleaseCpuBlock). `record`
// must not be null. Aborts unless HeaderOf(storage) is non-null.
void* TakeMemory(c10::StorageImpl& storage, void* record);

// Brings back: the storage owns `payload` (a payload of ours, at least nbytes() long) and is not
// armed. `on_evicted_gone` is not called. Aborts unless the storage is evicted.
void GiveMemory(c10::StorageImpl& storage, void* payload);

// Arms the tripwire of a resident storage of ours. Does nothing for evicted, empty and foreign
// storages, and if it is armed already. A few nanoseconds.
void Arm(c10::StorageImpl& storage);
// Disarms it; does nothing for the same storages as Arm. Evicted ones stay armed.
void Disarm(c10::StorageImpl& storage);
bool IsArmed(const c10::StorageImpl& storage);

// An operator used the block: what writes to it from now on without one is no longer a mere fill.
// To be called for every argument of an operator, and for every result of one that initialises
// it.
inline void MarkUsed(BlockHeader& header) {
  if (header.flags.load(std::memory_order_relaxed) & kBlockFresh) {
    header.flags.fetch_and(~static_cast<uint32_t>(kBlockFresh), std::memory_order_relaxed);
  }
}

namespace internal {
// How many operators the thread is in.
extern constinit thread_local int operator_depth __attribute__((tls_model("initial-exec")));
}  // namespace internal

// Lives around the kernel of an operator: accesses on this thread are the kernel's.
class OperatorScope {
 public:
  OperatorScope() { ++internal::operator_depth; }
  ~OperatorScope() { --internal::operator_depth; }
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;
};
inline bool InOperator() { return internal::operator_depth > 0; }

// Tells whether the calling thread computes a part of an operator of another thread, which is
// then what its accesses belong to. By default no thread does.
void SetComputeWorkerTest(int (*on_compute_worker)());

// For the preload shim: the members of EbbtideBackendHooks (shim/shim_api.h) of the same names.
// The first two are null for torch 2.13 and later.
struct CowHandlers {
  int (*is_cow)(const void* data_ptr);
  int (*materialize)(void* storage_impl);
  void (*before_lazy_clone)(void* storage_impl);
  void (*before_tensor_access)(const void* tensor, int is_mutable);
};
CowHandlers GetCowHandlers();

// Evicts, touches and arms a storage made for the purpose and reports what does not work: a torch
// whose inside differs from the one this was built for, or a process without the preload shim
// where one is needed. Call it after InstallCpuAllocator, and after the shim has the CowHandlers;
// it sets callbacks of its own and removes them.
absl::Status CheckStorageSwap();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_STORAGE_SWAP_H_
