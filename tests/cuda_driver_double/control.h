// SPDX-License-Identifier: Apache-2.0
//
// What a test says to the double and asks of it. These are C functions that libcuda.so.1 exports
// beside the driver's, so that a test that has opened the library finds them with dlsym; it needs
// nothing of this header but the types.
//
// Threads: any. Ownership: texts that are returned are the double's and stay until the next call of
// the same function on the same thread.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CONTROL_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CONTROL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EBBTIDE_DOUBLE_EXPORT __attribute__((visibility("default")))

// What is there now, on all devices together. A program that has cleaned up leaves all of it 0
// but for the counts that say otherwise. Fields are only ever added, at the end.
struct EbbtideDoubleCounts {
  int64_t bytes_committed;       // of the devices' memory
  int64_t bytes_peak;            // sum of each device's most, not 0 afterwards
  int64_t handles;               // of cuMemCreate, cuMemImportFromShareableHandle and the like
  int64_t handle_references;     // what cuMemRelease must still be called for
  int64_t mappings;              // of cuMemMap
  int64_t reservations;          // of cuMemAddressReserve
  int64_t allocations;           // of cuMemAlloc and cuMemAllocAsync
  int64_t host_allocations;      // of cuMemHostAlloc
  int64_t host_registrations;    // of cuMemHostRegister
  int64_t imported_allocations;  // of cuIpcOpenMemHandle
  int64_t streams;
  int64_t events;
  int64_t graphs;              // executable ones too
  int64_t contexts;            // primary contexts that are there
  int64_t context_references;  // what cuDevicePrimaryCtxRelease must still be called for
  int64_t operations_pending;  // queued on streams, not done
  int64_t hazards;             // reported since the start or the last ebbtide_double_reset
  int64_t devices_broken;      // that have failed for good
};

// Sets one setting: "capacity", "fail" and so on, as README.md lists them; an empty value sets its
// default. 0 on success. Otherwise -1, nothing changed, and ebbtide_double_error says why.
EBBTIDE_DOUBLE_EXPORT int ebbtide_double_set(const char* name, const char* value);
EBBTIDE_DOUBLE_EXPORT const char* ebbtide_double_error(void);

// As before cuInit in a new process: all that was made is gone, addresses included, all counts
// are 0, and the settings are those of the environment. Work that is queued is not run.
EBBTIDE_DOUBLE_EXPORT void ebbtide_double_reset(void);

EBBTIDE_DOUBLE_EXPORT void ebbtide_double_count(struct EbbtideDoubleCounts* counts);

// Bytes of one device that are in use, and the most there ever were. -1 for no such device.
EBBTIDE_DOUBLE_EXPORT int64_t ebbtide_double_bytes_committed(int device);
EBBTIDE_DOUBLE_EXPORT int64_t ebbtide_double_bytes_peak(int device);

// How often an entry point was called ("cuMemAlloc" or "cuMemAlloc_v2"; "*" for all), failed calls
// included, since the start, ebbtide_double_reset or ebbtide_double_reset_calls.
EBBTIDE_DOUBLE_EXPORT int64_t ebbtide_double_calls(const char* name);
EBBTIDE_DOUBLE_EXPORT void ebbtide_double_reset_calls(void);

// What hazard number `index` was, or null when there were not so many.
EBBTIDE_DOUBLE_EXPORT const char* ebbtide_double_hazard(size_t index);
EBBTIDE_DOUBLE_EXPORT void ebbtide_double_clear_hazards(void);

// Queues work of a kernel that reads or writes [address, address + size) on a stream, without an
// effect but for what it finds there: memory that is not there breaks the device. A result code of
// the driver.
EBBTIDE_DOUBLE_EXPORT int ebbtide_double_touch(void* stream, uint64_t address, size_t size,
                                               int writes);

// The device fails for good with this code of the driver. A result code of the driver.
EBBTIDE_DOUBLE_EXPORT int ebbtide_double_break(int device, int code);

// Runs everything that is queued on all devices.
EBBTIDE_DOUBLE_EXPORT void ebbtide_double_run_all(void);

#ifdef __cplusplus
}
#endif

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CONTROL_H_
