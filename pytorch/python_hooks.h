// SPDX-License-Identifier: Apache-2.0
//
// Python's side doors: the functions of torch._C that read a tensor's memory without running an
// operator (tolist, the storage methods, torch.save's writer, data_ptr, numpy, DLPack). An
// evicted storage must be brought back before they look, and stay while they do; those that give
// the address away must be known as escapes.
//
// The C function behind each of them is replaced inside its Python object (the descriptor keeps
// its identity, name, signature and doc string), so that no program, no subclass, no torch
// function mode, no pickle and no compiler that traces Python can tell. Python code in the
// objects' place would be seen by torch.compile. This is done when `import torch` is complete;
// python_hooks.py, which is embedded, waits for that moment.
//
// Nothing here needs Python at link time or its headers: a C++ program has none, and the
// functions are looked up by name in the process. The layout of the few CPython structs that are
// touched is checked against the live objects before anything is changed.
//
// Threads: `hold` and `release` are called on any thread that runs Python, without the
// interpreter lock. Ownership: everything lives as long as the process. To cover another
// function, add it to the lists in python_hooks.py.
#ifndef EBBTIDE_PYTORCH_PYTHON_HOOKS_H_
#define EBBTIDE_PYTORCH_PYTHON_HOOKS_H_

#include <c10/core/StorageImpl.h>

#include "absl/status/status.h"

namespace ebbtide {

enum class HoldKind {
  kRead,    // The memory is read until the matching `release`.
  kWrite,   // And written: what was there before ends.
  kEscape,  // The address outlives the call: keep the memory for the rest of the storage's life.
};

struct PythonHookCallbacks {
  // Python is about to use the storage's memory: bring it back if it was evicted, disarm it (the
  // access that follows is known) and keep it where it is until the matching `release`, which comes
  // for an escape as well. Called for storages that are not ours, too. May throw: a
  // c10::OutOfMemoryError becomes torch.OutOfMemoryError, anything else a RuntimeError; there is no
  // `release` then.
  void (*hold)(c10::StorageImpl& storage, HoldKind kind);
  // Arms it again unless it has escaped. Must not throw. The storage may have another data
  // pointer by now.
  void (*release)(c10::StorageImpl& storage);
  // The import of torch is complete. OK: all side doors are covered and evictions may start.
  // Otherwise none is, and nothing may ever be evicted. Called at most once, with the interpreter
  // lock held; not at all where the import fails.
  void (*ready)(const absl::Status& status);
};

// Prepares the hooks. Call it once, on the thread that loads torch's Python extension, from
// within that (the interpreter lock is held, `import torch` is on its way). Fails, changing
// nothing, where there is no interpreter or it is not one that this understands.
absl::Status StartPythonHooks(const PythonHookCallbacks& callbacks);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_PYTHON_HOOKS_H_
