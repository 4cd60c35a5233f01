// SPDX-License-Identifier: Apache-2.0
//
// A library that is a CUDA driver by its names only, built three times: one in which the functions
// are found by the cuGetProcAddress of CUDA 12, one by that of CUDA 11.3, one by exported symbols.
// Each function returns ROUTE, so that a test sees which way it was found.
//
//     ROUTE  1: exported symbols   11: cuGetProcAddress   12: cuGetProcAddress_v2

#include <cstdint>
#include <cstring>

extern "C" {

#define EBB_EXPORT __attribute__((visibility("default")))

#if ROUTE == 1

#define EBB_SYMBOL(name) \
  EBB_EXPORT int name() { return ROUTE; }
EBB_SYMBOL(cuInit)
EBB_SYMBOL(cuDriverGetVersion)
EBB_SYMBOL(cuGetErrorName)
EBB_SYMBOL(cuGetErrorString)
EBB_SYMBOL(cuDeviceGet)
EBB_SYMBOL(cuDeviceGetName)
EBB_SYMBOL(cuDeviceGetAttribute)
EBB_SYMBOL(cuDeviceTotalMem_v2)
EBB_SYMBOL(cuDeviceCanAccessPeer)
EBB_SYMBOL(cuDevicePrimaryCtxRetain)
EBB_SYMBOL(cuDevicePrimaryCtxRelease_v2)
EBB_SYMBOL(cuCtxPushCurrent_v2)
EBB_SYMBOL(cuCtxPopCurrent_v2)
EBB_SYMBOL(cuCtxSynchronize)
EBB_SYMBOL(cuThreadExchangeStreamCaptureMode)
EBB_SYMBOL(cuMemAlloc_v2)
EBB_SYMBOL(cuMemFree_v2)
EBB_SYMBOL(cuStreamIsCapturing)
EBB_SYMBOL(cuEventCreate)
EBB_SYMBOL(cuEventRecord)
EBB_SYMBOL(cuEventQuery)
EBB_SYMBOL(cuEventSynchronize)
EBB_SYMBOL(cuEventDestroy_v2)

#else

static int ByAddress() { return ROUTE; }

// The only symbol besides: so that it shows which way is preferred, and which is the last resort.
EBB_EXPORT int cuInit() { return 1; }
EBB_EXPORT int cuMemMap() { return 1; }

static int Find(const char* name, void** address, int version, uint64_t flags) {
  const bool known = strncmp(name, "cu", 2) == 0 && version >= 2000 && flags == 1;
  const bool hidden = strcmp(name, "cuMemMap") == 0 || strcmp(name, "cuMemUnmap") == 0;
  *address = known && !hidden ? reinterpret_cast<void*>(ByAddress) : nullptr;
  return 0;
}

#if ROUTE == 12
EBB_EXPORT int cuGetProcAddress_v2(const char* name, void** address, int version, uint64_t flags,
                                   int* status) {
  *status = 0;
  return Find(name, address, version, flags);
}
#else
EBB_EXPORT int cuGetProcAddress(const char* name, void** address, int version, uint64_t flags) {
  return Find(name, address, version, flags);
}
#endif

#endif

}  // extern "C"
