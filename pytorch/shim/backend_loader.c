// SPDX-License-Identifier: Apache-2.0
//
// Chooses the backend for the torch that was loaded, loads it and starts it. Whatever goes wrong,
// the program runs on without it, after one line on stderr.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "pytorch/shim/shim_internal.h"

static char torch_folder[EBBTIDE_PATH_BYTES];
static char torch_version[64];
static char failure[EBBTIDE_LINE_BYTES];

// Two copies, so that readers never see half of one; publish is rare and from one thread at a
// time.
static EbbtideBackendHooks hook_copies[2];
static _Atomic(EbbtideBackendHooks*) current_hooks = &hook_copies[0];

const EbbtideBackendHooks* ebbtide_hooks(void) {
  return atomic_load_explicit(&current_hooks, memory_order_acquire);
}

void ebbtide_publish(const EbbtideBackendHooks* hooks) {
  EbbtideBackendHooks* next =
      ebbtide_hooks() == &hook_copies[0] ? &hook_copies[1] : &hook_copies[0];
  memset(next, 0, sizeof(*next));
  memcpy(next, hooks, hooks->size < sizeof(*next) ? hooks->size : sizeof(*next));
  atomic_store_explicit(&current_hooks, next, memory_order_release);
}

// Whether EBBTIDE_STRICT asks that the program be stopped: anything but a word for no does.
static int StrictRequested(void) {
  const char* setting = getenv("EBBTIDE_STRICT");
  if (setting == NULL) return 0;
  static const char* const kNo[] = {"", "0", "no", "false", "off"};
  for (size_t i = 0; i < sizeof(kNo) / sizeof(kNo[0]); ++i) {
    if (strcasecmp(setting, kNo[i]) == 0) return 0;
  }
  return 1;
}

// Says why the program runs unmanaged, in one write so that the lines of several processes do not
// mix. Under EBBTIDE_STRICT ends the process instead: at once, as torch is half imported and
// has nothing to tidy up.
static __attribute__((format(printf, 1, 2))) void Unmanaged(const char* format, ...) {
  const int strict = StrictRequested();
  char line[EBBTIDE_LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  if (length < 0) return;
  char text[EBBTIDE_LINE_BYTES + 128];
  length = snprintf(text, sizeof(text), "[ebbtide] %s; %s\n", line,
                    strict ? "stopping, as EBBTIDE_STRICT asks" : "the program runs unmanaged");
  ssize_t written = write(STDERR_FILENO, text, (size_t)length);
  (void)written;  // There is nowhere to say that stderr is closed.
  if (strict) _exit(2);
}

// Reads a small file into `text`; the number of bytes, or -1.
static ssize_t ReadFile(const char* path, char* text, size_t capacity) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t length = read(file, text, capacity - 1);
  close(file);
  if (length >= 0) text[length] = '\0';
  return length;
}

// Copies the version that starts at `from` ("2.15.0+cu132") into torch_version.
static int KeepVersion(const char* from) {
  const size_t length = strspn(from, "0123456789abcdefghijklmnopqrstuvwxyz.+-_");
  if (length == 0 || length >= sizeof(torch_version)) return 0;
  memcpy(torch_version, from, length);
  torch_version[length] = '\0';
  return 1;
}

// From version.py of a Python package, or build-version of a C++ distribution.
static int FindVersion(void) {
  char path[EBBTIDE_PATH_BYTES + 32];
  char text[4096];
  snprintf(path, sizeof(path), "%s/version.py", torch_folder);
  if (ReadFile(path, text, sizeof(text)) > 0) {
    const char* line = strstr(text, "__version__ =");
    if (line == NULL) return 0;
    line += strlen("__version__ =");
    line += strspn(line, " ");
    return (*line == '\'' || *line == '"') && KeepVersion(line + 1);
  }
  snprintf(path, sizeof(path), "%s/build-version", torch_folder);
  return ReadFile(path, text, sizeof(text)) > 0 && KeepVersion(text);
}

// Cuts `levels` names off the end of a path.
static int FindFolder(const char* library, int levels) {
  const size_t length = strlen(library);
  if (length >= sizeof(torch_folder)) return 0;
  memcpy(torch_folder, library, length + 1);
  for (; levels > 0; --levels) {
    char* slash = strrchr(torch_folder, '/');
    if (slash == NULL) return 0;
    *slash = '\0';
  }
  return 1;
}

// The backend's path: beside this library, one for each minor version.
static int BackendPath(char* path, size_t capacity) {
  int major = 0;
  int minor = 0;
  Dl_info self;
  if (sscanf(torch_version, "%d.%d", &major, &minor) != 2) return 0;
  if (dladdr((void*)&ebbtide_publish, &self) == 0 || self.dli_fname == NULL) return 0;
  const char* slash = strrchr(self.dli_fname, '/');
  const int folder = slash == NULL ? 1 : (int)(slash - self.dli_fname);
  const int length = snprintf(path, capacity, "%.*s/libebbtide_torch_%d_%d.so", folder,
                              slash == NULL ? "." : self.dli_fname, major, minor);
  return length > 0 && (size_t)length < capacity;
}

static void StartBackend(const char* path, int in_python) {
  static EbbtideShimApi api;
  // Its dependencies are torch's libraries, which are loaded and found by name.
  void* backend = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (backend == NULL) {
    const char* error = dlerror();
    Unmanaged("the backend for torch %s cannot be loaded (%s)", torch_version,
              error == NULL ? "unknown" : error);
    return;
  }
  int (*start)(const EbbtideShimApi*) =
      (int (*)(const EbbtideShimApi*))dlsym(backend, "ebbtide_backend_start");
  if (start == NULL) {
    Unmanaged("%s is not a backend", path);
    return;
  }
  api = (EbbtideShimApi){
      .size = sizeof(api),
      .abi = EBBTIDE_SHIM_ABI,
      .torch_version = torch_version,
      .torch_folder = torch_folder,
      .in_python = in_python,
      .publish = &ebbtide_publish,
      .unarmed_threads = &ebbtide_unarmed_threads,
      .on_compute_worker = &ebbtide_on_compute_worker,
      .reason = failure,
      .reason_bytes = sizeof(failure),
  };
  if (start(&api) != 0) Unmanaged("%s", failure[0] == '\0' ? "the backend did not start" : failure);
}

void ebbtide_torch_seen(const char* torch_library, int levels, int in_python) {
  static atomic_flag seen = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&seen)) return;
  char path[EBBTIDE_PATH_BYTES + 64];
  if (!FindFolder(torch_library, levels) || !FindVersion()) {
    Unmanaged("cannot tell the version of the torch at %s", torch_library);
    return;
  }
  if (!BackendPath(path, sizeof(path))) {
    Unmanaged("cannot tell where the backend for torch %s should be", torch_version);
    return;
  }
  if (access(path, F_OK) != 0) {
    Unmanaged("torch %s is not supported (there is no %s)", torch_version, path);
    return;
  }
  StartBackend(path, in_python);
}
