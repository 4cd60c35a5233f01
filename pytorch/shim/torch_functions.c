// SPDX-License-Identifier: Apache-2.0
//
// Stands in for functions of torch at which no dispatch key helps: three of libc10.so that decide
// about copy-on-write storages, and the CPU kernel that reads one element. A preloaded library
// comes first in every look-up, so all of torch's libraries, and extensions into which torch's
// headers were inlined, call these. They ask the backend and go on to torch's own. C++ exceptions
// of the backend pass through: these frames have nothing to undo.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "pytorch/shim/shim_internal.h"

// The names as the C++ compiler makes them:
//   bool c10::impl::cow::is_cow_data_ptr(const c10::DataPtr&)
//   void c10::impl::cow::materialize_cow_storage(c10::StorageImpl&) (torch up to 2.12)
//   c10::intrusive_ptr<c10::StorageImpl> c10::impl::cow::lazy_clone_storage(c10::StorageImpl&)
//   c10::Scalar at::native::_local_scalar_dense_cpu(const at::Tensor&)
#define C10 "libc10.so"
#define TORCH_CPU "libtorch_cpu.so"
#define IS_COW "_ZN3c104impl3cow15is_cow_data_ptrERKNS_7DataPtrE"
#define MATERIALIZE "_ZN3c104impl3cow23materialize_cow_storageERNS_11StorageImplE"
#define LAZY_CLONE "_ZN3c104impl3cow18lazy_clone_storageERNS_11StorageImplE"
#define SCALAR_READ "_ZN2at6native23_local_scalar_dense_cpuERKNS_6TensorE"

EBBTIDE_EXPORT _Bool ebbtide_is_cow(const void* data_ptr) __asm__(IS_COW);
EBBTIDE_EXPORT void ebbtide_materialize(void* storage_impl) __asm__(MATERIALIZE);

// torch's own function. RTLD_NEXT would not find it: Python loads torch's libraries outside of
// the global scope.
static void* Real(_Atomic(void*)* cache, const char* library, const char* name) {
  void* real = atomic_load_explicit(cache, memory_order_relaxed);
  if (real != NULL) return real;
  void* torch = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (torch != NULL) real = dlsym(torch, name);
  if (real == NULL) {
    static const char kLine[] = "[ebbtide] a library of torch lacks a function that torch calls\n";
    ssize_t written = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
    (void)written;
    abort();
  }
  atomic_store_explicit(cache, real, memory_order_relaxed);
  return real;
}

_Bool ebbtide_is_cow(const void* data_ptr) {
  static _Atomic(void*) cache;
  int (*ours)(const void*) = ebbtide_hooks()->is_cow;
  if (ours != NULL) {
    const int answer = ours(data_ptr);
    if (answer >= 0) return answer != 0;
  }
  return ((_Bool(*)(const void*))Real(&cache, C10, IS_COW))(data_ptr);
}

void ebbtide_materialize(void* storage_impl) {
  static _Atomic(void*) cache;
  int (*ours)(void*) = ebbtide_hooks()->materialize;
  if (ours != NULL && ours(storage_impl) != 0) return;
  ((void (*)(void*))Real(&cache, C10, MATERIALIZE))(storage_impl);
}

#if defined(__x86_64__)
// An object with a destructor is returned through a hidden first argument, whose address is the
// return value.
EBBTIDE_EXPORT void* ebbtide_lazy_clone(void* result, void* storage_impl) __asm__(LAZY_CLONE);

void* ebbtide_lazy_clone(void* result, void* storage_impl) {
  static _Atomic(void*) cache;
  void (*before)(void*) = ebbtide_hooks()->before_lazy_clone;
  if (before != NULL) before(storage_impl);
  return ((void* (*)(void*, void*))Real(&cache, C10, LAZY_CLONE))(result, storage_impl);
}

EBBTIDE_EXPORT void* ebbtide_scalar_read(void* result, const void* tensor) __asm__(SCALAR_READ);

void* ebbtide_scalar_read(void* result, const void* tensor) {
  static _Atomic(void*) cache;
  void (*before)(const void*) = ebbtide_hooks()->before_scalar_read;
  if (before != NULL) before(tensor);
  return ((void* (*)(void*, const void*))Real(&cache, TORCH_CPU, SCALAR_READ))(result, tensor);
}
#endif
