// SPDX-License-Identifier: Apache-2.0
//
// The types of the CUDA driver's binary interface that the double's entry points use, in our own
// words, so that it builds without the toolkit. Where the toolkit's header is there, abi_check.cc
// compares the two at compile time. Opaque pointers of the driver are numbers here.
//
// Plain values: any thread, nothing owned. To add one: here and, with its numbers, in abi_check.cc.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CUDA_ABI_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

#include "tests/cuda_driver_double/core/address_space.h"
#include "tests/cuda_driver_double/core/capture.h"
#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

using DeviceOrdinal = int;
using DevicePointer = uint64_t;
using MemoryHandle = uint64_t;

enum class ContextHandle : uintptr_t {};
enum class EventHandle : uintptr_t {};
enum class GraphHandle : uintptr_t {};
enum class GraphExecHandle : uintptr_t {};
enum class PoolHandle : uintptr_t {};

enum class StreamHandle : uintptr_t {
  kDefault = 0,    // the legacy stream
  kLegacy = 1,     // likewise
  kPerThread = 2,  // the calling thread's own
};

enum class LocationType : int { kNone = 0, kDevice = 1, kHost = 2, kHostNuma = 3 };

struct MemoryLocation {
  LocationType type = LocationType::kNone;
  int id = 0;
};

enum class AllocationType : int { kInvalid = 0, kPinned = 1 };
enum class HandleType : int { kNone = 0, kPosixDescriptor = 1, kFabric = 8 };
enum class GranularityKind : int { kMinimum = 0, kRecommended = 1 };

struct AllocationProperties {
  AllocationType type = AllocationType::kInvalid;
  HandleType requested_handle_types = HandleType::kNone;
  MemoryLocation location;
  void* win32_meta_data = nullptr;
  uint8_t compression_type = 0;
  uint8_t gpu_direct_rdma_capable = 0;
  uint16_t usage = 0;
  uint8_t reserved[4] = {};
};

struct AccessDescription {
  MemoryLocation location;
  Access flags = Access::kNone;
};

// Content is ours alone: a process only hands it to another's cuIpcOpenMemHandle.
struct IpcHandle {
  char bytes[64] = {};
};

struct DeviceUuid {
  char bytes[16] = {};
};

enum class MemoryType : int { kHost = 1, kDevice = 2 };

enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class ProcAddressResult : int { kFound = 0, kNotFound = 1, kVersionNotSufficient = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kStreamFlagsAll = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventInterprocess = 4;
inline constexpr unsigned kEventFlagsAll = 7;
inline constexpr unsigned kHostAllocFlagsAll = 7;
inline constexpr unsigned kHostRegisterFlagsAll = 15;

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CUDA_ABI_H_
