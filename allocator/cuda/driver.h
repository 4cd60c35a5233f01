// SPDX-License-Identifier: Apache-2.0
//
// CudaDriver is the CUDA driver, found at run time: nothing needs CUDA to be linked or started, and
// a program without a GPU learns from a Status what is missing. It is a table of the driver's
// functions (driver_api.h) and the rule by which their results become Status values.
//
// A driver's error keeps the driver's own words: the call that failed, the name and the text of the
// error ("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"). Errors that the driver reports
// from then on at each call (a kernel that read a wrong address) are passed on at each call.
//
// Thread-safe: it does not change after it was made. Ownership: a plain value; the library stays
// loaded until the process ends, because the driver does not survive being unloaded. To replace:
// load another library by its path, or give the constructor a table of your own.

#ifndef EBBTIDE_ALLOCATOR_CUDA_DRIVER_H_
#define EBBTIDE_ALLOCATOR_CUDA_DRIVER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/cuda/driver_api.h"

namespace ebbtide {

class CudaDriver {
 public:
  static constexpr char kDefaultLibrary[] = "libcuda.so.1";

  // Loads `library` (a name that the loader looks for, or a path) and finds its functions. Does not
  // initialise the driver.
  // Errors: NotFound when there is no such library; FailedPrecondition when it lacks functions
  // without which nothing works, with their names.
  static absl::StatusOr<CudaDriver> Load(const std::string& library = kDefaultLibrary);

  // A driver made of the functions given. REQUIRES: none is null but those that virtual_memory()
  // and stream_ids() look for.
  explicit CudaDriver(const CudaFunctions& functions) : functions_(functions) {}

  const CudaFunctions& functions() const { return functions_; }

  // Starts the driver in this process; a second time does nothing.
  // Errors: the driver's, for example NotFound when it sees no device.
  absl::Status Initialize() const;

  // OK when the driver has all functions for virtual memory (CUDA 10.2), else Unimplemented with
  // the names of those that are missing. A device may lack it all the same:
  // CudaMemory::SupportsVirtualMemory.
  absl::Status virtual_memory() const;

  // The same for telling streams apart (CUDA 12.0).
  absl::Status stream_ids() const;

  // What `result`, returned by `call`, means: ResourceExhausted for CUDA_ERROR_OUT_OF_MEMORY and
  // for nothing else; NotFound when there is no device or no such device; Unimplemented for
  // CUDA_ERROR_NOT_SUPPORTED; FailedPrecondition for what a stream capture forbids; Internal for
  // all others.
  absl::Status Check(CuResult result, absl::string_view call) const {
    return result == kCuSuccess ? absl::OkStatus() : Failure(result, call);
  }

  // True for the errors that say that something is forbidden while a stream is being captured.
  static bool IsCaptureError(CuResult result) {
    return result >= kCuErrorStreamCaptureUnsupported && result <= kCuErrorCapturedEvent;
  }

 private:
  absl::Status Failure(CuResult result, absl::string_view call) const;

  CudaFunctions functions_;
};

// One row of the table by which Load finds the functions; here for the test that compares it with
// the toolkit's header.
struct CudaEntryPoint {
  enum class Need { kAlways, kVirtualMemory, kStreamIds };

  const char* name;    // as cuGetProcAddress knows it
  const char* symbol;  // as the library exports it: the name and the version of its signature
  int version;         // the CUDA release with that signature: 1000 x major + 10 x minor
  Need need;
  void (*store)(CudaFunctions* functions, void* address);
  bool (*is_null)(const CudaFunctions& functions);
};

absl::Span<const CudaEntryPoint> CudaEntryPoints();

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_DRIVER_H_
