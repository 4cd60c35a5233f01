// SPDX-License-Identifier: Apache-2.0
#include "pytorch/python_hooks.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "pytorch/exit_hook.h"
#include "pytorch/python_api.h"
#include "pytorch/python_hooks_source.h"
#include "pytorch/python_patch.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

// How a function uses memory: the same numbers as in python_hooks.py.
enum Mode { kRead = 0, kEscape = 1, kNotCow = 2, kReadToInt = 3, kWrite = 4 };

HoldKind KindOf(int mode, bool saving) {
  if (mode == kWrite) return HoldKind::kWrite;
  return mode == kEscape && !saving ? HoldKind::kEscape : HoldKind::kRead;
}

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;
using Storages = absl::InlinedVector<StoragePtr, 2>;

// Written once, under the interpreter lock, before the first function is replaced.
struct State {
  PythonApi api;
  PythonHookCallbacks callbacks;
  size_t head = 0;  // Size of Python's object head, in bytes.
  void* tensor_type = nullptr;
  void* storage_type = nullptr;
  void* out_of_memory_error = nullptr;
};
State* g_state = nullptr;

// What torch.save has looked at on this thread and must find at the same address until it ends.
thread_local int t_saving = 0;
thread_local std::vector<StoragePtr> t_saved;

void* WordAt(void* object, size_t offset) {
  return *reinterpret_cast<void**>(static_cast<char*>(object) + offset);
}

// Both of torch's Python types hold one intrusive pointer right behind the object's head.
void Collect(void* object, Storages& storages) {
  const State& state = *g_state;
  if (object == nullptr) return;
  void* type = WordAt(object, state.head - sizeof(void*));
  if (state.api.PyType_IsSubtype(type, state.storage_type) != 0) {
    auto* storage = static_cast<c10::StorageImpl*>(WordAt(object, state.head));
    if (storage != nullptr) storages.push_back(StoragePtr::reclaim_copy(storage));
  } else if (state.api.PyType_IsSubtype(type, state.tensor_type) != 0) {
    auto* tensor = static_cast<c10::TensorImpl*>(WordAt(object, state.head));
    if (tensor == nullptr || !tensor->has_storage()) return;
    storages.push_back(StoragePtr::reclaim_copy(tensor->unsafe_storage().unsafeGetStorageImpl()));
  }
}

void Release(const Storages& storages, size_t count) {
  for (size_t i = 0; i < count; ++i) g_state->callbacks.release(*storages[i]);
}

// Holds all storages or none. What went wrong, as a Python exception type and text; null if
// nothing.
std::pair<void*, std::string> HoldAll(const Storages& storages, HoldKind kind) {
  const State& state = *g_state;
  std::pair<void*, std::string> failure{nullptr, ""};
  size_t held = 0;
  // Bringing memory back may take long and may need other threads.
  void* thread = state.api.PyEval_SaveThread();
  try {
    for (; held < storages.size(); ++held) state.callbacks.hold(*storages[held], kind);
  } catch (const c10::OutOfMemoryError& error) {
    failure = {state.out_of_memory_error, error.what_without_backtrace()};
  } catch (const c10::Error& error) {
    failure = {state.api.PyExc_RuntimeError, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    failure = {state.api.PyExc_RuntimeError, error.what()};
  }
  if (failure.first != nullptr) Release(storages, held);
  state.api.PyEval_RestoreThread(thread);
  return failure;
}

bool AnyOfOurs(const Storages& storages) {
  for (const StoragePtr& storage : storages) {
    if (HeaderOf(*storage) != nullptr || RecordOfEvicted(*storage) != nullptr) return true;
  }
  return false;
}

// Stands in for every replaced function.
void* AroundCall(const PythonCall& call) {
  const State& state = *g_state;
  Storages storages;
  ForEachArgument(state.api, call, [&storages](void* object) { Collect(object, storages); });
  if (!AnyOfOurs(storages)) return call.Run();
  if (call.mode == kNotCow) return state.api.PyBool_FromLong(0);

  const bool saving = t_saving > 0;
  const auto [error, text] = HoldAll(storages, KindOf(call.mode, saving));
  if (error != nullptr) {
    state.api.PyErr_SetString(error, text.c_str());
    return call.mode == kReadToInt ? reinterpret_cast<void*>(-1) : nullptr;
  }
  void* result = call.Run();
  if (saving && call.mode == kEscape) {
    t_saved.insert(t_saved.end(), storages.begin(), storages.end());
  } else {
    Release(storages, storages.size());
  }
  return result;
}

void BeginSave() { ++t_saving; }

void EndSave() {
  if (--t_saving > 0) return;
  for (const StoragePtr& storage : std::exchange(t_saved, {})) g_state->callbacks.release(*storage);
}

absl::Status Install(void* targets, void* probe, void* probe_storage, void* tensor, void* storage) {
  const State& state = *g_state;
  if (WordAt(probe, state.head) != tensor || WordAt(probe_storage, state.head) != storage) {
    return absl::UnimplementedError("torch lays out its Python objects in a new way");
  }
  std::vector<PythonTarget> list;
  for (ptrdiff_t i = 0; i < state.api.PyList_Size(targets); ++i) {
    void* pair = state.api.PyList_GetItem(targets, i);
    list.push_back({state.api.PyTuple_GetItem(pair, 0),
                    static_cast<int>(state.api.PyLong_AsLong(state.api.PyTuple_GetItem(pair, 1)))});
    state.api.Py_IncRef(list.back().object);
  }
  return PatchPython(state.api, list.data(), list.size(), state.head, &AroundCall);
}

// Called by python_hooks.py when the import of torch is complete. `tensor` and `storage` are the
// C++ objects behind `probe` and `probe_storage`.
void InstallFromPython(void* targets, void* types, void* out_of_memory_error, void* probe,
                       void* probe_storage, ptrdiff_t head, void* tensor, void* storage) {
  State& state = *g_state;
  state.head = static_cast<size_t>(head);
  state.tensor_type = state.api.PyTuple_GetItem(types, 0);
  state.storage_type = state.api.PyTuple_GetItem(types, 1);
  state.out_of_memory_error = out_of_memory_error;
  for (void* kept : {types, out_of_memory_error}) state.api.Py_IncRef(kept);
  state.callbacks.ready(Install(targets, probe, probe_storage, tensor, storage));
}

template <typename Function>
void SetAddress(const PythonApi& api, void* names, const char* name, Function* function) {
  void* number = api.PyLong_FromVoidPtr(reinterpret_cast<void*>(function));
  api.PyDict_SetItemString(names, name, number);
  api.Py_DecRef(number);
}

}  // namespace

absl::Status StartPythonHooks(const PythonHookCallbacks& callbacks) {
  absl::StatusOr<PythonApi> loaded = LoadPythonApi();
  if (!loaded.ok()) return loaded.status();
  // For ever: replaced functions outlive static destructors.
  g_state = new State{*loaded, callbacks};
  const PythonApi& api = g_state->api;
  const int gil = api.PyGILState_Ensure();
  // A namespace of its own: nothing appears in the program's modules.
  void* names = api.PyDict_New();
  SetAddress(api, names, "INSTALL", &InstallFromPython);
  SetAddress(api, names, "EXIT", &RunExitHook);
  SetAddress(api, names, "BEGIN_SAVE", &BeginSave);
  SetAddress(api, names, "END_SAVE", &EndSave);
  constexpr int kFileInput = 257;  // Py_file_input: a whole module.
  void* result = api.PyRun_StringFlags(kPythonHooksSource, kFileInput, names, names, nullptr);
  if (result == nullptr) api.PyErr_Clear();
  const bool started = result != nullptr;
  if (started) api.Py_DecRef(result);
  api.Py_DecRef(names);
  api.PyGILState_Release(gil);
  if (!started) return absl::FailedPreconditionError("the import of torch cannot be watched");
  return absl::OkStatus();
}

}  // namespace ebbtide
