// SPDX-License-Identifier: Apache-2.0
//
// Replaces the C function behind a Python object: a method descriptor, a slot wrapper or a
// built-in function. The object itself stays what it was. All replacements share one shape: they
// call `around` with what is needed to look at the arguments and to call the original.
//
// Threads: patching needs the interpreter lock; a replaced function is called with it, on any
// thread. Ownership: a replacement is for ever. To support another kind of object, extend
// FindSlot in the .cc.
#ifndef EBBTIDE_PYTORCH_PYTHON_PATCH_H_
#define EBBTIDE_PYTORCH_PYTHON_PATCH_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "pytorch/python_api.h"

namespace ebbtide {

// One call of a replaced function: its raw C arguments, which Python's calling convention
// (`flags`, METH_* of the C API) gives a meaning.
struct PythonCall {
  // Every convention passes at most four words; a function takes those that it knows.
  using Function = void* (*)(void*, void*, void*, void*);

  Function original;
  int flags;
  int mode;  // As given to PatchPython.
  void* words[4];

  void* Run() const { return original(words[0], words[1], words[2], words[3]); }
};

// Calls `visit` with every object among the call's arguments, the bound one included.
void ForEachArgument(const PythonApi& api, const PythonCall& call,
                     absl::FunctionRef<void(void* object)> visit);

// What is to be patched: `object`, with a number that the calls carry.
struct PythonTarget {
  void* object;
  int mode;
};

// Replaces the functions of all targets, or none and says what is in the way. `head` is the size
// of Python's object head in bytes (object.__basicsize__). At most kMostPythonTargets targets,
// once.
inline constexpr size_t kMostPythonTargets = 48;
absl::Status PatchPython(const PythonApi& api, const PythonTarget* targets, size_t count,
                         size_t head, void* (*around)(const PythonCall& call));

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_PYTHON_PATCH_H_
