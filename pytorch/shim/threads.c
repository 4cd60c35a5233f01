// SPDX-License-Identifier: Apache-2.0
//
// Arms the threads that the program starts: torch's dispatch keys are per thread and start out
// empty. The function that a thread is started with is wrapped, so that the backend's hook runs
// on the new thread before it.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "pytorch/shim/shim_internal.h"

typedef int (*CreateFunction)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
typedef int (*FindObjectFunction)(void*, struct dl_find_object*);

static _Atomic(CreateFunction) real_create;
static _Atomic(FindObjectFunction) find_object;  // glibc 2.35 and later.
static atomic_uint threads_before_backend;
static pthread_key_t leave_key;
static int has_leave_key;
static __thread int on_compute_worker;

static CreateFunction RealCreate(void) {
  CreateFunction real = atomic_load_explicit(&real_create, memory_order_relaxed);
  if (real == NULL) {
    real = (CreateFunction)dlsym(RTLD_NEXT, "pthread_create");
    atomic_store_explicit(&real_create, real, memory_order_relaxed);
  }
  return real;
}

static void LeaveThread(void) {
  // 0 already in the child of a fork that this thread called.
  unsigned count = atomic_load(&threads_before_backend);
  while (count > 0 && !atomic_compare_exchange_weak(&threads_before_backend, &count, count - 1)) {
  }
}

// Destructor of `leave_key`: runs however the thread ends.
static void OnThreadEnd(void* unused) {
  (void)unused;
  LeaveThread();
}

// A child has only the thread that forked.
static void ForgetThreads(void) { atomic_store(&threads_before_backend, 0); }

__attribute__((constructor)) static void PrepareThreads(void) {
  RealCreate();
  atomic_store(&find_object, (FindObjectFunction)dlsym(RTLD_DEFAULT, "_dl_find_object"));
  has_leave_key = pthread_key_create(&leave_key, &OnThreadEnd) == 0;
  pthread_atfork(NULL, NULL, &ForgetThreads);
}

uint32_t ebbtide_unarmed_threads(void) { return atomic_load(&threads_before_backend); }

int ebbtide_on_compute_worker(void) { return on_compute_worker; }

// Does the function belong to a library whose threads only ever compute parts of an operator?
// They are many, they are started on the first parallel loop, and they dispatch nothing. The
// look-up takes no lock, as its caller may hold any.
static int IsComputeWorker(void* (*function)(void*)) {
  static const char* const kLibraries[] = {"libgomp",           "libiomp", "libomp", "libopenblas",
                                           "libscipy_openblas", "libblis", "libmkl"};
  const FindObjectFunction find = atomic_load_explicit(&find_object, memory_order_relaxed);
  struct dl_find_object found;
  if (find == NULL || find((void*)function, &found) != 0 || found.dlfo_link_map == NULL) return 0;
  const char* path = found.dlfo_link_map->l_name;
  const char* slash = strrchr(path, '/');
  const char* name = slash == NULL ? path : slash + 1;
  for (size_t i = 0; i < sizeof(kLibraries) / sizeof(kLibraries[0]); ++i) {
    if (strncmp(name, kLibraries[i], strlen(kLibraries[i])) == 0) return 1;
  }
  return 0;
}

typedef struct ThreadStart {
  void* (*function)(void*);
  void* argument;
  int is_worker;
  int counted;
} ThreadStart;

static void* RunThread(void* argument) {
  const ThreadStart start = *(ThreadStart*)argument;
  free(argument);
  on_compute_worker = start.is_worker;
  if (start.counted && pthread_setspecific(leave_key, &leave_key) != 0) LeaveThread();
  void (*arm)(void) = ebbtide_hooks()->arm_thread;
  if (arm != NULL && !start.is_worker) arm();
  return start.function(start.argument);
}

EBBTIDE_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                  void* (*function)(void*), void* argument) {
  const CreateFunction real = RealCreate();
  ThreadStart* start = malloc(sizeof(*start));
  if (start == NULL) return real(thread, attributes, function, argument);
  start->function = function;
  start->argument = argument;
  start->is_worker = IsComputeWorker(function);
  start->counted = has_leave_key && !start->is_worker && ebbtide_hooks()->arm_thread == NULL;
  const int counted = start->counted;
  if (counted) atomic_fetch_add(&threads_before_backend, 1);
  const int result = real(thread, attributes, &RunThread, start);
  if (result != 0) {
    if (counted) LeaveThread();
    free(start);
  }
  return result;
}
