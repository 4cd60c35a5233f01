// SPDX-License-Identifier: Apache-2.0
//
// Sees torch being loaded. Python loads torch by opening ".../torch/_C.<abi>.so"; a C++ program
// has it among its own libraries when it starts.
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "pytorch/shim/shim_internal.h"

typedef void* (*DlopenFunction)(const char*, int);

static _Atomic(DlopenFunction) real_dlopen;

static DlopenFunction RealDlopen(void) {
  DlopenFunction real = atomic_load_explicit(&real_dlopen, memory_order_relaxed);
  if (real == NULL) {
    real = (DlopenFunction)dlsym(RTLD_NEXT, "dlopen");
    atomic_store_explicit(&real_dlopen, real, memory_order_relaxed);
  }
  return real;
}

static int StartsWith(const char* text, size_t length, const char* prefix) {
  const size_t prefix_length = strlen(prefix);
  return length >= prefix_length && memcmp(text, prefix, prefix_length) == 0;
}

// Is it torch's own extension module, ".../torch/_C.so" or ".../torch/_C.<abi>.so"?
static int IsTorchExtension(const char* path) {
  const char* name = strrchr(path, '/');
  if (name == NULL || name - path < 6 || memcmp(name - 6, "/torch", 6) != 0) return 0;
  ++name;
  const size_t length = strlen(name);
  return length >= 5 && StartsWith(name, length, "_C.") && memcmp(name + length - 3, ".so", 3) == 0;
}

// Opens the extension as the caller would, then looks for torch. Not inlined: its frame would end
// the tail call below.
static __attribute__((noinline)) void* OpenTorch(DlopenFunction real, const char* path, int flags) {
  void* handle = real(path, flags);
  if (handle != NULL) ebbtide_torch_seen(path, 1, 1);
  return handle;
}

// glibc finds the caller's RUNPATH by the return address of dlopen. All calls but one therefore
// go on by a jump, which leaves the stack as the caller made it. (`disable_tail_calls` must not
// be set for this file; a test looks.)
EBBTIDE_EXPORT void* dlopen(const char* path, int flags) {
  const DlopenFunction real = RealDlopen();
  if (path != NULL && IsTorchExtension(path)) return OpenTorch(real, path, flags);
  return real(path, flags);
}

// For a C++ program that is linked with torch: its libraries are there before main. One walk over
// the loaded files' names, a few microseconds.
__attribute__((constructor)) static void LookForLinkedTorch(void) {
  RealDlopen();
  void* handle = RealDlopen()("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return;
  struct link_map* map = NULL;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
    ebbtide_torch_seen(map->l_name, 2, 0);
  dlclose(handle);
}
