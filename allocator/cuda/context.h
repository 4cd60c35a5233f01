// SPDX-License-Identifier: Apache-2.0
//
// CudaContext holds on to a device's primary context, the one that PyTorch and every program that
// uses the CUDA runtime work in. Many driver calls act on whatever context is current on the
// calling thread, so they stand inside a Scope: it makes this context current, and at its end
// everything is as the caller had it. A Scope also lets the calls run while some stream is being
// captured: none of ours queues work on a captured stream, so none can end up in a graph.
//
// Thread-safe: a context may be used by many threads at once; a Scope belongs to one. Ownership:
// the context is kept alive until this is destroyed; a Scope and everything that was made in the
// context must end before. To replace: the driver's functions can be replaced, see driver.h.

#ifndef EBBTIDE_ALLOCATOR_CUDA_CONTEXT_H_
#define EBBTIDE_ALLOCATOR_CUDA_CONTEXT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/cuda/driver.h"

namespace ebbtide {

class CudaContext {
 public:
  // Initialises the driver and retains the primary context of device number `ordinal`. `driver`
  // must outlive the context.
  // Errors: NotFound when there is no such device; others as the driver says.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Retain(const CudaDriver* driver, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  CuDevice device() const { return device_; }

  class Scope {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    // Not OK when the context could not be made current: then no call may be made.
    const absl::Status& status() const { return status_; }

   private:
    const CudaFunctions& functions_;
    int capture_mode_;  // what this thread had before
    absl::Status status_;
  };

 private:
  CudaContext(const CudaDriver* driver, CuDevice device, CuContext context)
      : driver_(driver), device_(device), context_(context) {}

  const CudaDriver* const driver_;
  const CuDevice device_;
  const CuContext context_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_CONTEXT_H_
