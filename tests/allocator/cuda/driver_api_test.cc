// SPDX-License-Identifier: Apache-2.0
//
// Compares driver_api.h and the table in driver.cc with the toolkit's own headers, where there are
// any: every constant, the layout of every structure, and the name, version and signature of every
// entry point.

#include "allocator/cuda/driver_api.h"

#include <cstddef>
#include <string>
#include <type_traits>

#include "allocator/cuda/driver.h"
#include "gtest/gtest.h"

#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>

namespace ebbtide {
namespace {

static_assert(kCuSuccess == CUDA_SUCCESS);
static_assert(kCuErrorInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kCuErrorOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCuErrorNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kCuErrorNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kCuErrorInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kCuErrorInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kCuErrorInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kCuErrorNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCuErrorIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kCuErrorContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kCuErrorNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kCuErrorStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCuErrorStreamCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(kCuErrorCapturedEvent == CUDA_ERROR_CAPTURED_EVENT);

static_assert(kCuAttributeVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kCuAttributePosixFileDescriptor ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kCuAttributeGpuDirectRdmaWithVirtualMemory ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(kCuMemAllocationTypePinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kCuMemHandleTypePosixFileDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kCuMemLocationTypeDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kCuMemGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kCuMemAccessNone == CU_MEM_ACCESS_FLAGS_PROT_NONE);
static_assert(kCuMemAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kCuEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCuCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kCuCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kCuGetProcAddressLegacyStream == CU_GET_PROC_ADDRESS_LEGACY_STREAM);

static_assert(sizeof(CuMemLocation) == sizeof(CUmemLocation));
static_assert(offsetof(CuMemLocation, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(CuMemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(offsetof(CuMemAccessDesc, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(CuMemAllocationProp) == sizeof(CUmemAllocationProp));
static_assert(offsetof(CuMemAllocationProp, requested_handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(CuMemAllocationProp, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(CuMemAllocationProp, win32_handle_meta_data) ==
              offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(CuMemAllocationProp, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(CuMemAllocationProp::Flags, gpu_direct_rdma_capable) ==
              offsetof(decltype(CUmemAllocationProp::allocFlags), gpuDirectRDMACapable));
static_assert(offsetof(CuMemAllocationProp::Flags, usage) ==
              offsetof(decltype(CUmemAllocationProp::allocFlags), usage));
static_assert(sizeof(CuMemAllocationProp::Flags) == sizeof(CUmemAllocationProp::allocFlags));

// Two types that are passed alike: an enumeration is as good as an int, and one pointer as another.
template <typename A, typename B>
constexpr bool kPassedAlike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename A, typename B>
struct SameSignature : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct SameSignature<R (*)(A...), S (*)(B...)>
    : std::bool_constant<(kPassedAlike<R, S> && ... && kPassedAlike<A, B>)> {
};

static_assert(!SameSignature<int (*)(int), int (*)(int*)>::value);
static_assert(!SameSignature<int (*)(int), int (*)(long)>::value);
static_assert(!SameSignature<int (*)(int), int (*)(int, int)>::value);

struct Expected {
  const char* name;
  std::string symbol;  // the toolkit's macros lead from the name to it
  int version;
  bool (*has)(const CudaFunctions& functions);  // the member is not null
};

#define EBB_TEXT(x) #x
#define EBB_EXPANDED_TEXT(x) EBB_TEXT(x)
#define EBB_ENTRY(member, name, version)                                                          \
  []() -> Expected {                                                                              \
    static_assert(SameSignature<decltype(CudaFunctions::member), PFN_##name##_v##version>::value, \
                  #name " has another signature");                                                \
    return {#name, EBB_EXPANDED_TEXT(name), version,                                              \
            [](const CudaFunctions& functions) { return functions.member != nullptr; }};          \
  }()

const Expected kExpected[] = {
    EBB_ENTRY(init, cuInit, 2000),
    EBB_ENTRY(driver_get_version, cuDriverGetVersion, 2020),
    EBB_ENTRY(get_error_name, cuGetErrorName, 6000),
    EBB_ENTRY(get_error_string, cuGetErrorString, 6000),
    EBB_ENTRY(device_get, cuDeviceGet, 2000),
    EBB_ENTRY(device_get_name, cuDeviceGetName, 2000),
    EBB_ENTRY(device_get_attribute, cuDeviceGetAttribute, 2000),
    EBB_ENTRY(device_total_mem, cuDeviceTotalMem, 3020),
    EBB_ENTRY(device_can_access_peer, cuDeviceCanAccessPeer, 4000),
    EBB_ENTRY(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000),
    EBB_ENTRY(device_primary_ctx_release, cuDevicePrimaryCtxRelease, 11000),
    EBB_ENTRY(ctx_push_current, cuCtxPushCurrent, 4000),
    EBB_ENTRY(ctx_pop_current, cuCtxPopCurrent, 4000),
    EBB_ENTRY(ctx_synchronize, cuCtxSynchronize, 2000),
    EBB_ENTRY(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, 10010),
    EBB_ENTRY(mem_alloc, cuMemAlloc, 3020),
    EBB_ENTRY(mem_free, cuMemFree, 3020),
    EBB_ENTRY(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020),
    EBB_ENTRY(mem_address_reserve, cuMemAddressReserve, 10020),
    EBB_ENTRY(mem_address_free, cuMemAddressFree, 10020),
    EBB_ENTRY(mem_create, cuMemCreate, 10020),
    EBB_ENTRY(mem_release, cuMemRelease, 10020),
    EBB_ENTRY(mem_map, cuMemMap, 10020),
    EBB_ENTRY(mem_unmap, cuMemUnmap, 10020),
    EBB_ENTRY(mem_set_access, cuMemSetAccess, 10020),
    EBB_ENTRY(mem_export_to_shareable_handle, cuMemExportToShareableHandle, 10020),
    EBB_ENTRY(stream_get_id, cuStreamGetId, 12000),
    EBB_ENTRY(stream_is_capturing, cuStreamIsCapturing, 10000),
    EBB_ENTRY(event_create, cuEventCreate, 2000),
    EBB_ENTRY(event_record, cuEventRecord, 2000),
    EBB_ENTRY(event_query, cuEventQuery, 2000),
    EBB_ENTRY(event_synchronize, cuEventSynchronize, 2000),
    EBB_ENTRY(event_destroy, cuEventDestroy, 4000),
};

TEST(DriverApiTest, TheTableNamesWhatTheToolkitDeclares) {
  const auto rows = CudaEntryPoints();
  ASSERT_EQ(rows.size(), std::size(kExpected));
  ASSERT_EQ(rows.size() * sizeof(void*), sizeof(CudaFunctions)) << "a function has no row";
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_STREQ(rows[i].name, kExpected[i].name);
    EXPECT_EQ(rows[i].symbol, kExpected[i].symbol);
    EXPECT_EQ(rows[i].version, kExpected[i].version) << rows[i].name;
    CudaFunctions functions = {};
    EXPECT_TRUE(rows[i].is_null(functions));
    rows[i].store(&functions, &functions);
    EXPECT_FALSE(rows[i].is_null(functions));
    EXPECT_TRUE(kExpected[i].has(functions)) << rows[i].name;
  }
}

TEST(DriverApiTest, SpecialStreamsHaveTheToolkitsHandles) {
  EXPECT_EQ(reinterpret_cast<CUstream>(kCuStreamLegacy), CU_STREAM_LEGACY);
  EXPECT_EQ(reinterpret_cast<CUstream>(kCuStreamPerThread), CU_STREAM_PER_THREAD);
}

}  // namespace
}  // namespace ebbtide

#else

TEST(DriverApiTest, NeedsTheToolkitsHeaders) { GTEST_SKIP() << "no CUDA toolkit here"; }

#endif
