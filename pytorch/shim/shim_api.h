// SPDX-License-Identifier: Apache-2.0
//
// What the preload shim and a backend say to each other. The shim (libebbtide.so) is plain C
// without dependencies and lies in every process of a job; a backend
// (libebbtide_torch_<major>_<minor>.so) is C++ built against one minor version of torch and is
// loaded by the shim right after torch has been. This header is all they share, so it is C, it
// names no torch type, and every struct starts with its own size: a member may be added at the
// end, none may change.
//
// Order of events: the shim sees torch, loads the backend, calls `ebbtide_backend_start` once on
// the thread that loaded torch (when that is Python's import, with the interpreter's lock held).
// The backend answers through `publish` with the functions that the shim calls from then on. Both
// objects stay loaded until the process ends.
//
// Threads: every function here may be called from any thread once `publish` has returned. The
// shim holds no lock while it calls the backend.
//
// To replace the backend, export `ebbtide_backend_start` from a library of the name above beside
// the shim.
#ifndef EBBTIDE_PYTORCH_SHIM_SHIM_API_H_
#define EBBTIDE_PYTORCH_SHIM_SHIM_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised when a struct below changes in a way that its size does not tell.
#define EBBTIDE_SHIM_ABI 1

// What a backend gives the shim. Null members are allowed and mean that the shim does what it
// would do without one.
typedef struct EbbtideBackendHooks {
  uint32_t size;  // sizeof(EbbtideBackendHooks) of the backend's build, in bytes.

  // A thread that the program started later is about to run its own function, on that thread. Not
  // called for the compute workers of OpenMP and of linear-algebra libraries. Must not throw.
  void (*arm_thread)(void);

  // torch up to 2.12 asks, before it hands out a mutable pointer and whenever a storage gets new
  // memory, whether a c10::DataPtr is copy-on-write. 1: yes (it will then ask to materialize), 0:
  // no, -1: not ours, ask torch.
  int (*is_cow)(const void* data_ptr);

  // torch up to 2.12: make the c10::StorageImpl's memory writable before a mutable pointer is
  // handed out. 1: done, 0: not ours, torch does it. May throw a C++ exception through the shim.
  int (*materialize)(void* storage_impl);

  // A c10::StorageImpl is about to be shared copy-on-write; its memory has to be there and
  // plainly its own. May throw.
  void (*before_lazy_clone)(void* storage_impl);

  // C++ code outside or inside of torch asks an at::Tensor for its typed data pointer. torch looks
  // whether there is memory before it would ask to materialize it, and does not ask at all when the
  // pointer is const (`is_mutable` 0). May throw.
  void (*before_tensor_access)(const void* tensor, int is_mutable);
} EbbtideBackendHooks;

// What the shim gives a backend. It lives, unchanged, as long as the process.
typedef struct EbbtideShimApi {
  uint32_t size;  // sizeof(EbbtideShimApi) of the shim's build, in bytes.
  uint32_t abi;   // EBBTIDE_SHIM_ABI.

  const char* torch_version;  // As torch's version.py says it, for instance "2.15.0+cu132".
  const char* torch_folder;   // The folder that holds torch's lib/, without a slash at its end.
  int in_python;              // 1: torch was loaded by a Python interpreter, 0: by a C++ program.

  // Puts the hooks in force, all at once; the struct is copied. May be called again.
  void (*publish)(const EbbtideBackendHooks* hooks);

  // How many threads of the program are alive that were started before `publish` (the calling
  // thread and compute workers not counted): operators that they run are armed by other means.
  uint32_t (*unarmed_threads)(void);

  // 1 on a compute worker of OpenMP or of a linear-algebra library: it runs a part of an operator
  // of another thread.
  int (*on_compute_worker)(void);

  // Where a backend that does not start writes why: one line, no newline at its end, at most
  // `reason_bytes` with the terminating zero.
  char* reason;
  uint32_t reason_bytes;
} EbbtideShimApi;

// Exported by a backend. 0: it manages this process. Anything else: it has changed nothing, and
// `api->reason` says why; the shim then prints that line and the program goes on unmanaged (or,
// with EBBTIDE_STRICT=1, stops).
int ebbtide_backend_start(const EbbtideShimApi* api);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // EBBTIDE_PYTORCH_SHIM_SHIM_API_H_
