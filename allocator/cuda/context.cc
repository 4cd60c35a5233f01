// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/context.h"

#include "base/status_macros.h"

namespace ebbtide {

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Retain(const CudaDriver* driver,
                                                                 int ordinal) {
  EBB_RETURN_IF_ERROR(driver->Initialize());
  const CudaFunctions& cu = driver->functions();
  CuDevice device = 0;
  EBB_RETURN_IF_ERROR(driver->Check(cu.device_get(&device, ordinal), "cuDeviceGet"));
  CuContext context = nullptr;
  EBB_RETURN_IF_ERROR(
      driver->Check(cu.device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  return std::unique_ptr<CudaContext>(new CudaContext(driver, device, context));
}

// At the end of a process the driver may be gone already, and says so: nothing is left to release.
CudaContext::~CudaContext() { driver_->functions().device_primary_ctx_release(device_); }

CudaContext::Scope::Scope(const CudaContext& context)
    : functions_(context.driver_->functions()), capture_mode_(kCuCaptureModeRelaxed) {
  const CudaDriver& driver = *context.driver_;
  status_ = driver.Check(functions_.ctx_push_current(context.context_), "cuCtxPushCurrent");
  if (!status_.ok()) return;
  status_ = driver.Check(functions_.thread_exchange_stream_capture_mode(&capture_mode_),
                         "cuThreadExchangeStreamCaptureMode");
  if (status_.ok()) return;
  CuContext popped = nullptr;
  functions_.ctx_pop_current(&popped);
}

CudaContext::Scope::~Scope() {
  if (!status_.ok()) return;
  functions_.thread_exchange_stream_capture_mode(&capture_mode_);
  CuContext popped = nullptr;
  functions_.ctx_pop_current(&popped);
}

}  // namespace ebbtide
