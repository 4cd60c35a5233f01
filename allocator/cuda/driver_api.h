// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA driver's binary interface that Ebbtide calls: types, constants and the
// signatures of entry points, written down here so that everything builds without a CUDA toolkit.
// tests/allocator/cuda/driver_api_test.cc compares each of them with the toolkit's own header where
// there is one.
//
// The names are the driver's in this project's style: CUmemLocation is CuMemLocation, cuMemMap is
// CudaFunctions::mem_map. Enumerations are plain ints, which is what they are in the binary
// interface; addresses of the device are numbers. Threads and ownership are as the driver says. To
// add an entry point: a member here, a row in driver.cc, a row in the test.

#ifndef EBBTIDE_ALLOCATOR_CUDA_DRIVER_API_H_
#define EBBTIDE_ALLOCATOR_CUDA_DRIVER_API_H_

#include <cstddef>
#include <cstdint>

namespace ebbtide {

using CuResult = int;
using CuDevice = int;
using CuDevicePtr = unsigned long long;
using CuMemHandle = unsigned long long;
using CuContext = struct CuContextObject*;
using CuStream = struct CuStreamObject*;
using CuEvent = struct CuEventObject*;

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuErrorInvalidValue = 1;
inline constexpr CuResult kCuErrorOutOfMemory = 2;
inline constexpr CuResult kCuErrorNotInitialized = 3;
inline constexpr CuResult kCuErrorNoDevice = 100;
inline constexpr CuResult kCuErrorInvalidDevice = 101;
inline constexpr CuResult kCuErrorInvalidContext = 201;
inline constexpr CuResult kCuErrorInvalidHandle = 400;
inline constexpr CuResult kCuErrorNotReady = 600;
inline constexpr CuResult kCuErrorIllegalAddress = 700;
inline constexpr CuResult kCuErrorContextIsDestroyed = 709;
inline constexpr CuResult kCuErrorNotSupported = 801;
// All that stream capture forbids lies between these two.
inline constexpr CuResult kCuErrorStreamCaptureUnsupported = 900;
inline constexpr CuResult kCuErrorStreamCaptureImplicit = 906;
inline constexpr CuResult kCuErrorCapturedEvent = 907;

inline constexpr int kCuAttributeVirtualMemory = 102;
inline constexpr int kCuAttributePosixFileDescriptor = 103;
inline constexpr int kCuAttributeGpuDirectRdmaWithVirtualMemory = 110;

inline constexpr int kCuMemAllocationTypePinned = 1;
inline constexpr int kCuMemHandleTypeNone = 0;
inline constexpr int kCuMemHandleTypePosixFileDescriptor = 1;
inline constexpr int kCuMemLocationTypeDevice = 1;
inline constexpr int kCuMemGranularityMinimum = 0;
inline constexpr int kCuMemAccessNone = 0;
inline constexpr int kCuMemAccessReadWrite = 3;

inline constexpr unsigned int kCuEventDisableTiming = 2;
inline constexpr int kCuCaptureStatusNone = 0;
inline constexpr int kCuCaptureModeRelaxed = 2;
inline constexpr uint64_t kCuGetProcAddressLegacyStream = 1;

// Three handles that name no stream that was created. The last means another stream on each thread.
inline constexpr uintptr_t kCuStreamDefault = 0;
inline constexpr uintptr_t kCuStreamLegacy = 1;
inline constexpr uintptr_t kCuStreamPerThread = 2;

struct CuMemLocation {
  int type;
  int id;
};

struct CuMemAllocationProp {
  struct Flags {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  };
  int type;
  int requested_handle_types;
  CuMemLocation location;
  void* win32_handle_meta_data;
  Flags flags;
};

struct CuMemAccessDesc {
  CuMemLocation location;
  int flags;
};

// A member is null where the driver has no such function.
struct CudaFunctions {
  CuResult (*init)(unsigned int flags);
  CuResult (*driver_get_version)(int* version);
  CuResult (*get_error_name)(CuResult error, const char** text);
  CuResult (*get_error_string)(CuResult error, const char** text);

  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_get_name)(char* name, int size, CuDevice device);
  CuResult (*device_get_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*device_total_mem)(size_t* bytes, CuDevice device);
  CuResult (*device_can_access_peer)(int* can, CuDevice device, CuDevice owner);

  CuResult (*device_primary_ctx_retain)(CuContext* context, CuDevice device);
  CuResult (*device_primary_ctx_release)(CuDevice device);
  CuResult (*ctx_push_current)(CuContext context);
  CuResult (*ctx_pop_current)(CuContext* context);
  CuResult (*ctx_synchronize)();
  CuResult (*thread_exchange_stream_capture_mode)(int* mode);

  CuResult (*mem_alloc)(CuDevicePtr* address, size_t size);
  CuResult (*mem_free)(CuDevicePtr address);

  CuResult (*mem_get_allocation_granularity)(size_t* granularity, const CuMemAllocationProp* prop,
                                             int option);
  CuResult (*mem_address_reserve)(CuDevicePtr* address, size_t size, size_t alignment,
                                  CuDevicePtr wanted, unsigned long long flags);
  CuResult (*mem_address_free)(CuDevicePtr address, size_t size);
  CuResult (*mem_create)(CuMemHandle* handle, size_t size, const CuMemAllocationProp* prop,
                         unsigned long long flags);
  CuResult (*mem_release)(CuMemHandle handle);
  CuResult (*mem_map)(CuDevicePtr address, size_t size, size_t offset, CuMemHandle handle,
                      unsigned long long flags);
  CuResult (*mem_unmap)(CuDevicePtr address, size_t size);
  CuResult (*mem_set_access)(CuDevicePtr address, size_t size, const CuMemAccessDesc* access,
                             size_t count);
  CuResult (*mem_export_to_shareable_handle)(void* shared, CuMemHandle handle, int type,
                                             unsigned long long flags);

  CuResult (*stream_get_id)(CuStream stream, unsigned long long* id);
  CuResult (*stream_is_capturing)(CuStream stream, int* status);
  CuResult (*event_create)(CuEvent* event, unsigned int flags);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_query)(CuEvent event);
  CuResult (*event_synchronize)(CuEvent event);
  CuResult (*event_destroy)(CuEvent event);
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_DRIVER_API_H_
