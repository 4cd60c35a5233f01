// SPDX-License-Identifier: Apache-2.0
//
// The few functions of the Python C API that the hooks call, looked up in the running process, so
// that a backend needs neither Python's headers nor its library and serves every Python version.
// An object is an opaque pointer. What the functions do is written in Python's C API reference
// under the same names.
//
// Threads: all of them need the interpreter lock, but for PyEval_RestoreThread and the two of
// PyGILState. To use another function, add a line to the list.
#ifndef EBBTIDE_PYTORCH_PYTHON_API_H_
#define EBBTIDE_PYTORCH_PYTHON_API_H_

#include <cstddef>

#include "absl/status/statusor.h"

namespace ebbtide {

struct PythonApi {
  void* (*PyBool_FromLong)(long value);
  int (*PyDict_Next)(void* dict, ptrdiff_t* position, void** key, void** value);
  void* (*PyDict_New)();
  int (*PyDict_SetItemString)(void* dict, const char* key, void* value);
  void (*PyErr_Clear)();
  void (*PyErr_SetString)(void* type, const char* message);
  void (*PyEval_RestoreThread)(void* state);
  void* (*PyEval_SaveThread)();
  int (*PyGILState_Ensure)();
  void (*PyGILState_Release)(int state);
  void* (*PyList_GetItem)(void* list, ptrdiff_t index);
  ptrdiff_t (*PyList_Size)(void* list);
  long (*PyLong_AsLong)(void* number);
  void* (*PyLong_FromVoidPtr)(void* pointer);
  void* (*PyRun_StringFlags)(const char* source, int start, void* globals, void* locals, void*);
  int (*PyType_IsSubtype)(void* type, void* base);
  void* (*PyTuple_GetItem)(void* tuple, ptrdiff_t index);
  ptrdiff_t (*PyTuple_Size)(void* tuple);
  void (*Py_DecRef)(void* object);
  void (*Py_IncRef)(void* object);

  // Objects. Types are the addresses of the type objects themselves.
  void* PyExc_RuntimeError;
  void* PyCFunction_Type;
  void* PyMethodDescr_Type;
  void* PyWrapperDescr_Type;
};

// The API of the interpreter in this process; NotFound where there is none, or a function is
// missing (the message names it).
absl::StatusOr<PythonApi> LoadPythonApi();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_PYTHON_API_H_
