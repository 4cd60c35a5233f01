// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/wait_hooks.h"

#include <dlfcn.h>

namespace ebbtide {
namespace {

struct Interpreter {
  int (*holds_lock)();
  void* (*save)();
  void (*restore)(void*);
};

template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

const Interpreter& FoundInterpreter() {
  static const Interpreter interpreter = {
      Find<int (*)()>("PyGILState_Check"),
      Find<void* (*)()>("PyEval_SaveThread"),
      Find<void (*)(void*)>("PyEval_RestoreThread"),
  };
  return interpreter;
}

}  // namespace

void* LetGoOfInterpreter() {
  const Interpreter& interpreter = FoundInterpreter();
  if (interpreter.holds_lock == nullptr || interpreter.holds_lock() == 0) return nullptr;
  return interpreter.save();
}

void TakeInterpreterBack(void* token) {
  if (token != nullptr) FoundInterpreter().restore(token);
}

}  // namespace ebbtide
