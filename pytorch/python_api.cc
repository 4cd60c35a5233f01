// SPDX-License-Identifier: Apache-2.0
#include "pytorch/python_api.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ebbtide {

absl::StatusOr<PythonApi> LoadPythonApi() {
  PythonApi api{};
  absl::Status status;
  auto find = [&status](const char* name) -> void* {
    void* symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == nullptr) status = absl::NotFoundError(absl::StrCat("the process has no ", name));
    return symbol;
  };
#define EBB_FIND(name) api.name = reinterpret_cast<decltype(api.name)>(find(#name))
  EBB_FIND(PyBool_FromLong);
  EBB_FIND(PyDict_Next);
  EBB_FIND(PyDict_New);
  EBB_FIND(PyDict_SetItemString);
  EBB_FIND(PyErr_Clear);
  EBB_FIND(PyErr_SetString);
  EBB_FIND(PyEval_RestoreThread);
  EBB_FIND(PyEval_SaveThread);
  EBB_FIND(PyGILState_Ensure);
  EBB_FIND(PyGILState_Release);
  EBB_FIND(PyList_GetItem);
  EBB_FIND(PyList_Size);
  EBB_FIND(PyLong_AsLong);
  EBB_FIND(PyLong_FromVoidPtr);
  EBB_FIND(PyRun_StringFlags);
  EBB_FIND(PyType_IsSubtype);
  EBB_FIND(PyTuple_GetItem);
  EBB_FIND(PyTuple_Size);
  EBB_FIND(Py_DecRef);
  EBB_FIND(Py_IncRef);
  EBB_FIND(PyCFunction_Type);
  EBB_FIND(PyMethodDescr_Type);
  EBB_FIND(PyWrapperDescr_Type);
#undef EBB_FIND
  // A variable that holds the object, unlike the types.
  if (void* variable = find("PyExc_RuntimeError")) {
    api.PyExc_RuntimeError = *static_cast<void**>(variable);
  }
  if (!status.ok()) return status;
  return api;
}

}  // namespace ebbtide
