// SPDX-License-Identifier: Apache-2.0
// What the driver knows about an address.

#include <cstring>
#include <iterator>
#include <optional>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

// The numbers of the driver's CUpointer_attribute that the double answers.
enum Attribute : int {
  kContextAttribute = 1,
  kMemoryTypeAttribute = 2,
  kDevicePointerAttribute = 3,
  kHostPointerAttribute = 4,
  kSyncMemopsAttribute = 6,
  kBufferIdAttribute = 7,
  kIsManagedAttribute = 8,
  kDeviceOrdinalAttribute = 9,
  kIsLegacyIpcCapableAttribute = 10,
  kRangeStartAttribute = 11,
  kRangeSizeAttribute = 12,
  kMappedAttribute = 13,
  kAllowedHandleTypesAttribute = 14,
  kIsRdmaCapableAttribute = 15,
  kAccessFlagsAttribute = 16,
  kMempoolHandleAttribute = 17,
  kMappingSizeAttribute = 18,
  kMappingBaseAttribute = 19,
  kMemoryBlockIdAttribute = 20,
};

// Stores a value in the width that the attribute has.
template <typename T>
Result Give(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return Result::kSuccess;
}

// The range that the program would call the allocation: a reservation holds many mappings.
Reservation RangeOf(const Machine& machine, const View& view) {
  const Reservation* range = machine.addresses->FindReservation(view.start);
  return range != nullptr ? *range : Reservation{view.start, view.bytes};
}

uint64_t AllowedHandleTypes(const View& view) {
  const bool shareable = view.kind == ViewKind::kMapped && view.memory->shareable();
  return static_cast<uint64_t>(shareable ? HandleType::kPosixDescriptor : HandleType::kNone);
}

Result GiveOfPlace(const View& view, int attribute, DevicePointer address, void* data) {
  const bool host = view.kind == ViewKind::kPinnedHost;
  switch (attribute) {
    case kContextAttribute:
      // Mapped memory belongs to no context.
      return Give(data, host || view.kind == ViewKind::kMapped ? ContextHandle{}
                                                               : ContextOf(view.device()));
    case kMemoryTypeAttribute:
      return Give(data, host ? MemoryType::kHost : MemoryType::kDevice);
    case kDevicePointerAttribute:
      return Give(data, address);
    case kHostPointerAttribute:
      return host ? Give(data, address) : Result::kInvalidValue;
    case kDeviceOrdinalAttribute:
      return Give(data, host ? 0 : view.device());
    default:
      return Result::kInvalidValue;
  }
}

Result GiveAttribute(const Machine& machine, const View& view, int attribute, DevicePointer address,
                     void* data) {
  switch (attribute) {
    case kSyncMemopsAttribute:
    case kIsManagedAttribute:
      return Give(data, 0u);
    case kBufferIdAttribute:
      return Give(data, view.id);
    case kIsLegacyIpcCapableAttribute:
      return Give(data, view.kind == ViewKind::kAllocated ? 1 : 0);
    case kRangeStartAttribute:
      return Give(data, uint64_t{RangeOf(machine, view).start});
    case kRangeSizeAttribute:
      return Give(data, RangeOf(machine, view).bytes);
    case kMappedAttribute:
      return Give(data, 1);
    case kAllowedHandleTypesAttribute:
      return Give(data, AllowedHandleTypes(view));
    case kIsRdmaCapableAttribute:
      return Give(data, view.kind != ViewKind::kMapped || view.memory->rdma_capable() ? 1 : 0);
    case kAccessFlagsAttribute: {
      const std::vector<int>& contexts = CurrentThread(machine).contexts;
      if (contexts.empty()) return Result::kInvalidContext;
      return Give(data, static_cast<int>(view.access[contexts.back()]));
    }
    case kMempoolHandleAttribute:
      return Give(data, view.kind == ViewKind::kPooled ? PoolOf(view.device()) : PoolHandle{});
    case kMappingSizeAttribute:
      return Give(data, view.bytes);
    case kMappingBaseAttribute:
      return Give(data, uint64_t{view.start});
    case kMemoryBlockIdAttribute:
      return view.memory == nullptr ? Result::kInvalidValue : Give(data, view.memory->id());
    default:
      return GiveOfPlace(view, attribute, address, data);
  }
}

// What lies at the address; host memory that is registered looks like pinned memory.
std::optional<View> FindPlace(const Machine& machine, DevicePointer address) {
  if (const View* view = machine.addresses->Find(address)) return *view;
  const auto next = machine.registered_host.upper_bound(address);
  if (next == machine.registered_host.begin()) return std::nullopt;
  const auto& [start, bytes] = *std::prev(next);
  if (address >= start + bytes) return std::nullopt;
  View view{.start = start, .bytes = bytes, .kind = ViewKind::kPinnedHost};
  view.access.fill(Access::kReadWrite);
  return view;
}

}  // namespace

Result cuPointerGetAttribute(void* data, int attribute, DevicePointer address) {
  return Call(EntryPoint::cuPointerGetAttribute, [&](Machine& machine) {
    const std::optional<View> view = FindPlace(machine, address);
    if (data == nullptr || !view.has_value()) return Result::kInvalidValue;
    return GiveAttribute(machine, *view, attribute, address, data);
  });
}

Result cuPointerGetAttributes(unsigned count, int* attributes, void** data, DevicePointer address) {
  return Call(EntryPoint::cuPointerGetAttributes, [&](Machine& machine) {
    if (count == 0 || attributes == nullptr || data == nullptr) return Result::kInvalidValue;
    const std::optional<View> view = FindPlace(machine, address);
    for (unsigned i = 0; i < count; ++i) {
      // What there is no answer to is 0 and no error, in whatever width: the narrowest is safe.
      if (!view.has_value() ||
          GiveAttribute(machine, *view, attributes[i], address, data[i]) != Result::kSuccess) {
        std::memset(data[i], 0, sizeof(int));
      }
    }
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
