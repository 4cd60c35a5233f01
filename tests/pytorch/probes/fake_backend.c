// SPDX-License-Identifier: Apache-2.0
//
// A backend for a torch that does not exist: records what the shim tells it, for test_shim.py.
#include <stdio.h>
#include <string.h>

#include "pytorch/shim/shim_api.h"

static const EbbtideShimApi* shim;
static int armed;

static void ArmThread(void) { __atomic_fetch_add(&armed, 1, __ATOMIC_SEQ_CST); }

int ebbtide_backend_start(const EbbtideShimApi* api) {
  shim = api;
  if (strcmp(api->torch_version, "9.9.1+refuses") == 0) {
    snprintf(api->reason, api->reason_bytes, "the fake backend refuses");
    return 1;
  }
  const EbbtideBackendHooks hooks = {.size = sizeof(hooks), .arm_thread = &ArmThread};
  api->publish(&hooks);
  return 0;
}

int probe_armed(void) { return __atomic_load_n(&armed, __ATOMIC_SEQ_CST); }
int probe_unarmed_threads(void) { return (int)shim->unarmed_threads(); }
int probe_on_compute_worker(void) { return shim->on_compute_worker(); }
const char* probe_version(void) { return shim->torch_version; }
const char* probe_folder(void) { return shim->torch_folder; }
