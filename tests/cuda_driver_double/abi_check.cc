// SPDX-License-Identifier: Apache-2.0
// Compares our declarations with the toolkit's at compile time, where its header is to be found.
// Nothing of this file is left in the program.

#if __has_include(<cuda.h>)

// With this the header declares the older forms of its functions too, each under its own name.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "tests/cuda_driver_double/cuda_abi.h"

namespace ebbtide::hollow {
namespace {

// Two types that are passed in the same way: numbers, enums and pointers by their size.
template <typename T>
constexpr bool kIsScalar = std::is_scalar_v<T>;

template <typename Ours, typename Theirs>
constexpr bool kSameType = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
                           kIsScalar<Ours> == kIsScalar<Theirs>&& std::is_floating_point_v<Ours> ==
                               std::is_floating_point_v<Theirs> &&
                           (!std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>);

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};

template <typename... Ours, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameFunction<Result(Ours...), CUresult(Theirs...)>
    : std::bool_constant<(kSameType<Ours, Theirs> && ...)> {
};

#define ENTRY(name, needs, parameters)                                    \
  static_assert(SameFunction<Result parameters, decltype(::name)>::value, \
                #name " has other parameters in cuda.h");
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY

#define SAME_FIELD(our_type, our_field, their_type, their_field)                     \
  static_assert(offsetof(our_type, our_field) == offsetof(their_type, their_field)); \
  static_assert(sizeof(our_type::our_field) == sizeof(their_type::their_field))

static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation));
SAME_FIELD(MemoryLocation, id, CUmemLocation, id);
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
SAME_FIELD(AllocationProperties, type, CUmemAllocationProp, type);
SAME_FIELD(AllocationProperties, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(AllocationProperties, location, CUmemAllocationProp, location);
SAME_FIELD(AllocationProperties, win32_meta_data, CUmemAllocationProp, win32HandleMetaData);
static_assert(offsetof(AllocationProperties, compression_type) ==
              offsetof(CUmemAllocationProp, allocFlags.compressionType));
static_assert(offsetof(AllocationProperties, gpu_direct_rdma_capable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(offsetof(AllocationProperties, usage) ==
              offsetof(CUmemAllocationProp, allocFlags.usage));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
SAME_FIELD(AccessDescription, flags, CUmemAccessDesc, flags);
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(IpcHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(DeviceUuid) == sizeof(CUuuid));

template <typename Ours, typename Theirs>
constexpr bool Same(Ours ours, Theirs theirs) {
  return static_cast<long long>(ours) == static_cast<long long>(theirs);
}

static_assert(Same(LocationType::kDevice, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(Same(LocationType::kHost, CU_MEM_LOCATION_TYPE_HOST));
static_assert(Same(LocationType::kHostNuma, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(Same(AllocationType::kPinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(Same(HandleType::kPosixDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
static_assert(Same(HandleType::kFabric, CU_MEM_HANDLE_TYPE_FABRIC));
static_assert(Same(GranularityKind::kRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
static_assert(Same(Access::kRead, CU_MEM_ACCESS_FLAGS_PROT_READ));
static_assert(Same(Access::kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
static_assert(Same(MemoryType::kHost, CU_MEMORYTYPE_HOST));
static_assert(Same(MemoryType::kDevice, CU_MEMORYTYPE_DEVICE));
static_assert(Same(CaptureMode::kThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(Same(CaptureMode::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(Same(CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(Same(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED));
static_assert(Same(ProcAddressResult::kNotFound, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
static_assert(Same(ProcAddressResult::kVersionNotSufficient,
                   CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
static_assert(Same(kStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(Same(kEventDisableTiming, CU_EVENT_DISABLE_TIMING));
static_assert(Same(kEventInterprocess, CU_EVENT_INTERPROCESS));

#define RESULT(our_name, number, driver_name, text) \
  static_assert(Same(Result::our_name, driver_name), "another number in cuda.h");
#include "tests/cuda_driver_double/core/result.inc"
#undef RESULT

}  // namespace
}  // namespace ebbtide::hollow

#endif
