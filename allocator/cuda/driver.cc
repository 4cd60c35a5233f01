// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/driver.h"

#include <dlfcn.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ebbtide {
namespace {

using Need = CudaEntryPoint::Need;

template <auto Member>
void Store(CudaFunctions* functions, void* address) {
  auto& slot = functions->*Member;
  slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(address);
}

template <auto Member>
bool IsNull(const CudaFunctions& functions) {
  return functions.*Member == nullptr;
}

template <auto Member>
constexpr CudaEntryPoint Row(const char* name, const char* symbol, int version, Need need) {
  return {name, symbol, version, need, Store<Member>, IsNull<Member>};
}

template <auto Member>
constexpr CudaEntryPoint Row(const char* name, int version, Need need = Need::kAlways) {
  return Row<Member>(name, name, version, need);
}

using F = CudaFunctions;

constexpr CudaEntryPoint kEntryPoints[] = {
    Row<&F::init>("cuInit", 2000),
    Row<&F::driver_get_version>("cuDriverGetVersion", 2020),
    Row<&F::get_error_name>("cuGetErrorName", 6000),
    Row<&F::get_error_string>("cuGetErrorString", 6000),
    Row<&F::device_get>("cuDeviceGet", 2000),
    Row<&F::device_get_name>("cuDeviceGetName", 2000),
    Row<&F::device_get_attribute>("cuDeviceGetAttribute", 2000),
    Row<&F::device_total_mem>("cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020, Need::kAlways),
    Row<&F::device_can_access_peer>("cuDeviceCanAccessPeer", 4000),
    Row<&F::device_primary_ctx_retain>("cuDevicePrimaryCtxRetain", 7000),
    Row<&F::device_primary_ctx_release>("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
                                        11000, Need::kAlways),
    Row<&F::ctx_push_current>("cuCtxPushCurrent", "cuCtxPushCurrent_v2", 4000, Need::kAlways),
    Row<&F::ctx_pop_current>("cuCtxPopCurrent", "cuCtxPopCurrent_v2", 4000, Need::kAlways),
    Row<&F::ctx_synchronize>("cuCtxSynchronize", 2000),
    Row<&F::thread_exchange_stream_capture_mode>("cuThreadExchangeStreamCaptureMode", 10010),
    Row<&F::mem_alloc>("cuMemAlloc", "cuMemAlloc_v2", 3020, Need::kAlways),
    Row<&F::mem_free>("cuMemFree", "cuMemFree_v2", 3020, Need::kAlways),
    Row<&F::mem_get_allocation_granularity>("cuMemGetAllocationGranularity", 10020,
                                            Need::kVirtualMemory),
    Row<&F::mem_address_reserve>("cuMemAddressReserve", 10020, Need::kVirtualMemory),
    Row<&F::mem_address_free>("cuMemAddressFree", 10020, Need::kVirtualMemory),
    Row<&F::mem_create>("cuMemCreate", 10020, Need::kVirtualMemory),
    Row<&F::mem_release>("cuMemRelease", 10020, Need::kVirtualMemory),
    Row<&F::mem_map>("cuMemMap", 10020, Need::kVirtualMemory),
    Row<&F::mem_unmap>("cuMemUnmap", 10020, Need::kVirtualMemory),
    Row<&F::mem_set_access>("cuMemSetAccess", 10020, Need::kVirtualMemory),
    Row<&F::mem_export_to_shareable_handle>("cuMemExportToShareableHandle", 10020,
                                            Need::kVirtualMemory),
    Row<&F::stream_get_id>("cuStreamGetId", 12000, Need::kStreamIds),
    Row<&F::stream_is_capturing>("cuStreamIsCapturing", 10000),
    Row<&F::event_create>("cuEventCreate", 2000),
    Row<&F::event_record>("cuEventRecord", 2000),
    Row<&F::event_query>("cuEventQuery", 2000),
    Row<&F::event_synchronize>("cuEventSynchronize", 2000),
    Row<&F::event_destroy>("cuEventDestroy", "cuEventDestroy_v2", 4000, Need::kAlways),
};

std::vector<std::string> Missing(const CudaFunctions& functions, Need need) {
  std::vector<std::string> names;
  for (const CudaEntryPoint& row : kEntryPoints) {
    if (row.need == need && row.is_null(functions)) names.push_back(row.name);
  }
  return names;
}

// Finds functions in one library. cuGetProcAddress comes first: it is the driver's own answer to
// which version of a function has the signature that we know, and what tools that replace functions
// of the driver replace too. Drivers before CUDA 11.3 have only exported symbols.
class Finder {
 public:
  explicit Finder(void* library)
      : library_(library),
        by_status_(reinterpret_cast<ByStatus>(dlsym(library, "cuGetProcAddress_v2"))),
        by_result_(reinterpret_cast<ByResult>(dlsym(library, "cuGetProcAddress"))) {}

  void* Find(const CudaEntryPoint& row) const {
    void* address = nullptr;
    CuResult result = kCuErrorNotSupported;
    int status = 0;
    if (by_status_ != nullptr) {
      result = by_status_(row.name, &address, row.version, kCuGetProcAddressLegacyStream, &status);
    } else if (by_result_ != nullptr) {
      result = by_result_(row.name, &address, row.version, kCuGetProcAddressLegacyStream);
    }
    if (result == kCuSuccess && address != nullptr) return address;
    return dlsym(library_, row.symbol);
  }

 private:
  using ByStatus = CuResult (*)(const char*, void**, int, uint64_t, int*);  // CUDA 12.0
  using ByResult = CuResult (*)(const char*, void**, int, uint64_t);        // CUDA 11.3

  void* const library_;
  const ByStatus by_status_;
  const ByResult by_result_;
};

absl::Status Unavailable(const CudaFunctions& functions, Need need, absl::string_view what) {
  const std::vector<std::string> names = Missing(functions, need);
  if (names.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the CUDA driver is too old for ", what,
                                               ", it lacks ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::Span<const CudaEntryPoint> CudaEntryPoints() { return kEntryPoints; }

absl::StatusOr<CudaDriver> CudaDriver::Load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return absl::NotFoundError(
        absl::StrCat("the CUDA driver cannot be loaded: ", reason ? reason : library));
  }
  CudaFunctions functions = {};
  const Finder finder(handle);
  for (const CudaEntryPoint& row : kEntryPoints) row.store(&functions, finder.Find(row));
  const std::vector<std::string> names = Missing(functions, Need::kAlways);
  if (names.empty()) return CudaDriver(functions);
  dlclose(handle);
  return absl::FailedPreconditionError(absl::StrCat(
      library, " is no CUDA driver, or one too old: it lacks ", absl::StrJoin(names, ", ")));
}

absl::Status CudaDriver::Initialize() const { return Check(functions_.init(0), "cuInit"); }

absl::Status CudaDriver::virtual_memory() const {
  return Unavailable(functions_, Need::kVirtualMemory, "virtual memory");
}

absl::Status CudaDriver::stream_ids() const {
  return Unavailable(functions_, Need::kStreamIds, "telling streams apart");
}

absl::Status CudaDriver::Failure(CuResult result, absl::string_view call) const {
  const char* name = nullptr;
  const char* text = nullptr;
  // For an error that it does not know the driver sets neither.
  if (functions_.get_error_name(result, &name) != kCuSuccess) name = nullptr;
  if (functions_.get_error_string(result, &text) != kCuSuccess) text = nullptr;
  std::string message = absl::StrCat(call, ": ");
  absl::StrAppend(&message, name ? std::string(name) : absl::StrCat("CUDA error ", result));
  if (text != nullptr) absl::StrAppend(&message, " (", text, ")");
  switch (result) {
    case kCuErrorOutOfMemory:
      return absl::ResourceExhaustedError(message);
    case kCuErrorNoDevice:
    case kCuErrorInvalidDevice:
      return absl::NotFoundError(message);
    case kCuErrorNotSupported:
      return absl::UnimplementedError(message);
    default:
      return IsCaptureError(result) ? absl::FailedPreconditionError(message)
                                    : absl::InternalError(message);
  }
}

}  // namespace ebbtide
