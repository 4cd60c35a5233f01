// SPDX-License-Identifier: Apache-2.0
//
// Stands in for functions of torch at which no dispatch key helps: three of libc10.so that decide
// about copy-on-write storages, and those that give out a tensor's data pointer. A preloaded
// library comes first in every look-up, so all of torch's libraries, and extensions into which
// torch's headers were inlined, call these. They ask the backend and go on to torch's own. C++
// exceptions of the backend pass through: these frames have nothing to undo.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "pytorch/shim/shim_internal.h"

// The names as the C++ compiler makes them:
//   bool c10::impl::cow::is_cow_data_ptr(const c10::DataPtr&)
//   void c10::impl::cow::materialize_cow_storage(c10::StorageImpl&) (torch up to 2.12)
//   c10::intrusive_ptr<c10::StorageImpl> c10::impl::cow::lazy_clone_storage(c10::StorageImpl&)
//   T* at::TensorBase::data_ptr<T>() const, mutable_data_ptr<T>, const_data_ptr<T and const T>
#define C10 "libc10.so"
#define TORCH_CPU "libtorch_cpu.so"
#define IS_COW "_ZN3c104impl3cow15is_cow_data_ptrERKNS_7DataPtrE"
#define MATERIALIZE "_ZN3c104impl3cow23materialize_cow_storageERNS_11StorageImplE"
#define LAZY_CLONE "_ZN3c104impl3cow18lazy_clone_storageERNS_11StorageImplE"

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
#endif

typedef void* (*AccessFunction)(const void*);

static void* Access(const void* tensor, int is_mutable, _Atomic(void*)* cache, const char* name) {
  void (*before)(const void*, int) = ebbtide_hooks()->before_tensor_access;
  if (before != NULL) before(tensor, is_mutable);
  return ((AccessFunction)Real(cache, TORCH_CPU, name))(tensor);
}

#define STAND_IN(function, is_mutable, name)                       \
  EBBTIDE_EXPORT void* function(const void* tensor) __asm__(name); \
  void* function(const void* tensor) {                             \
    static _Atomic(void*) cache;                                   \
    return Access(tensor, is_mutable, &cache, name);               \
  }

// All instances for one element type, whose mangled name is given. The last two are const_data_ptr
// as torch up to 2.12 names it.
#define TYPED_ACCESS(id, type)                                                                \
  STAND_IN(ebbtide_data_##id, 1, "_ZNK2at10TensorBase8data_ptrI" type "EEPT_v")               \
  STAND_IN(ebbtide_mutable_##id, 1, "_ZNK2at10TensorBase16mutable_data_ptrI" type "EEPT_v")   \
  STAND_IN(ebbtide_const_##id, 0, "_ZNK2at10TensorBase14const_data_ptrI" type "EEPKT_v")      \
  STAND_IN(ebbtide_constk_##id, 0, "_ZNK2at10TensorBase14const_data_ptrIK" type "EEPKT_v")    \
  STAND_IN(ebbtide_const0_##id, 0, "_ZNK2at10TensorBase14const_data_ptrI" type "Li0EEEPKT_v") \
  STAND_IN(ebbtide_constk0_##id, 0,                                                           \
           "_ZNK2at10TensorBase14const_data_ptrIK" type "Li0EEEPKNSt12remove_constIT_E4typeEv")

TYPED_ACCESS(i8, "a")
TYPED_ACCESS(b, "b")
TYPED_ACCESS(f64, "d")
TYPED_ACCESS(f32, "f")
TYPED_ACCESS(u8, "h")
TYPED_ACCESS(i32, "i")
TYPED_ACCESS(u32, "j")
TYPED_ACCESS(i64, "l")
TYPED_ACCESS(u64, "m")
TYPED_ACCESS(i16, "s")
TYPED_ACCESS(u16, "t")
TYPED_ACCESS(half, "N3c104HalfE")
TYPED_ACCESS(bf16, "N3c108BFloat16E")
TYPED_ACCESS(e5m2, "N3c1011Float8_e5m2E")
TYPED_ACCESS(e4m3, "N3c1013Float8_e4m3fnE")
TYPED_ACCESS(e8m0, "N3c1014Float8_e8m0fnuE")
TYPED_ACCESS(e4m3z, "N3c1015Float8_e4m3fnuzE")
TYPED_ACCESS(e5m2z, "N3c1015Float8_e5m2fnuzE")
TYPED_ACCESS(qi8, "N3c105qint8E")
TYPED_ACCESS(qi32, "N3c106qint32E")
TYPED_ACCESS(qu8, "N3c106quint8E")
TYPED_ACCESS(qu2, "N3c108quint2x4E")
TYPED_ACCESS(qu4, "N3c108quint4x2E")
TYPED_ACCESS(ch, "N3c107complexINS2_4HalfEEE")
TYPED_ACCESS(cb, "N3c107complexINS2_8BFloat16EEE")
TYPED_ACCESS(cd, "N3c107complexIdEE")
TYPED_ACCESS(cf, "N3c107complexIfEE")
