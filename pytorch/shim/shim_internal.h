// SPDX-License-Identifier: Apache-2.0
//
// Between the files of the preload shim; see shim_api.h for what it is. All of it must work in
// any process at any time: before its own constructor has run, in a child after fork, in programs
// that never load torch. No lock is ever held and nothing is allocated but the one small struct
// that starts a thread.
#ifndef EBBTIDE_PYTORCH_SHIM_SHIM_INTERNAL_H_
#define EBBTIDE_PYTORCH_SHIM_SHIM_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "pytorch/shim/shim_api.h"

// Everything is hidden by default; the functions that stand in for those of other libraries are
// not.
#define EBBTIDE_EXPORT __attribute__((visibility("default")))

// Longest path or line that the shim handles, in bytes.
#define EBBTIDE_PATH_BYTES 4096
#define EBBTIDE_LINE_BYTES 1024

// The backend's hooks; never null, its members may be.
const EbbtideBackendHooks* ebbtide_hooks(void);
void ebbtide_publish(const EbbtideBackendHooks* hooks);

// backend_loader.c. `torch_library` is the path of a library that lies in torch's folder
// (`levels` folders below it). Only the first call does something.
void ebbtide_torch_seen(const char* torch_library, int levels, int in_python);

// threads.c.
uint32_t ebbtide_unarmed_threads(void);
int ebbtide_on_compute_worker(void);

#endif  // EBBTIDE_PYTORCH_SHIM_SHIM_INTERNAL_H_
