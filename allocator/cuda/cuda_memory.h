// SPDX-License-Identifier: Apache-2.0
//
// CudaMemory is the DeviceMemory of a CUDA device, in one of two modes:
//
//   virtual memory   addresses are reserved, and pieces of physical memory (the driver's allocation
//                    handles) are mapped to them, moved and taken away. The default.
//   plain            Reserve is cuMemAlloc, Unreserve is cuMemFree, nothing comes or goes in parts.
//                    For what cannot take virtual memory: the older interprocess handles
//                    (cuIpcGetMemHandle) refuse it, and some devices have none.
//
// No call waits for the device, and the driver does not promise that taking memory away does: the
// caller knows, from a StreamOrder, that no work that uses the memory is left.
//
// Thread-safe: one lock. Any thread may call, whatever context is current there; it still is
// afterwards. Ownership: it keeps the device's primary context alive, and takes back what is still
// reserved when it is destroyed. To replace: see device_memory.h.

#ifndef EBBTIDE_ALLOCATOR_CUDA_CUDA_MEMORY_H_
#define EBBTIDE_ALLOCATOR_CUDA_CUDA_MEMORY_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/btree_map.h"
#include "allocator/cuda/context.h"
#include "allocator/cuda/handle_pool.h"
#include "allocator/cuda/mapping_table.h"
#include "allocator/device_memory.h"

namespace ebbtide {

class CudaMemory : public DeviceMemory {
 public:
  struct Options {
    int ordinal = 0;                               // which device
    bool virtual_memory = true;                    // false: plain mode, none of the following
    Bytes large_piece = Bytes(int64_t{20} << 20);  // rounded up to the granularity
    Bytes handle_pool = Bytes(0);                  // most bytes of unused pieces to keep
    std::vector<int> peers = {};                   // other devices that may use the memory
    bool exportable = false;                       // ExportPiece works
  };

  // A piece as another process can import it (cuMemImportFromShareableHandle).
  struct Export {
    int fd;        // to be closed by the caller
    Bytes size;    // of the piece
    Bytes offset;  // of the address asked for, in the piece
  };

  // True when `driver` and device number `ordinal` can do virtual memory. Initialises the driver.
  static absl::StatusOr<bool> SupportsVirtualMemory(const CudaDriver& driver, int ordinal);

  // `driver` must outlive the result.
  // Errors: Unimplemented when driver or device lacks what the options ask for; InvalidArgument for
  // options that make no sense; NotFound for a device that is not there; others as the driver says.
  static absl::StatusOr<std::unique_ptr<CudaMemory>> Create(const CudaDriver* driver,
                                                            const Options& options);
  ~CudaMemory() override;

  Bytes granularity() const override { return granularity_; }
  Bytes large_piece() const override { return large_piece_; }
  bool supports_partial_decommit() const override { return virtual_memory_; }
  bool supports_move() const override { return virtual_memory_; }
  absl::StatusOr<void*> Reserve(Bytes size) override;
  using DeviceMemory::Commit;
  // All of the range becomes accessible in one driver call, whatever its number of pieces.
  absl::Status Commit(void* address, Bytes size, Bytes piece) override;
  // Also InvalidArgument for a range that cuts a piece or is not committed.
  absl::Status Decommit(void* address, Bytes size) override;
  // For a moment the pieces have both addresses, so that undoing it takes nothing but one unmap.
  absl::Status Move(void* from, void* to, Bytes size) override;
  // On error the range is still reserved; what was committed in it may be given back in part.
  absl::Status Unreserve(void* address, Bytes size) override;
  Bytes capacity() const override { return capacity_; }
  bool is_host_accessible() const override { return false; }
  // Unused pieces: at most Options::handle_pool, unless the driver refuses to take some back.
  Bytes retained() const override;
  void BoundRetained(Room room) override;
  absl::Status ReleaseRetained() override;

  // Lets device number `ordinal` use all memory that is committed now or later. A second time, and
  // for the own device, it does nothing. On error nothing has changed.
  // Errors: FailedPrecondition when that device cannot reach this one; Unimplemented in plain mode,
  // where the program's own cuCtxEnablePeerAccess covers all memory.
  absl::Status AddPeer(int ordinal);

  // Makes the piece around `address` known outside of this process. From then on it goes to the
  // device, not into the pool, when it is decommitted.
  // Errors: FailedPrecondition without Options::exportable; InvalidArgument when nothing is
  // committed at `address`; others as the driver says.
  absl::StatusOr<Export> ExportPiece(void* address);

 private:
  struct Range {
    Bytes size;
    CuDevicePtr base;  // what the driver returned: the same address, but for plain mode
  };

  CudaMemory(std::unique_ptr<CudaContext> context, const Options& options, Bytes granularity,
             Bytes capacity, const CuMemAllocationProp& properties);

  absl::Status CheckGranules(uintptr_t address, Bytes size) const;
  absl::StatusOr<uintptr_t> ReserveVirtual(Bytes size);
  absl::StatusOr<uintptr_t> ReservePlain(Bytes size, CuDevicePtr* base);

  // These need the lock. Free also needs a Scope.
  absl::Status CheckReserved(uintptr_t address, Bytes size) const;
  absl::Status Free(uintptr_t address, const Range& range);

  const std::unique_ptr<CudaContext> context_;
  const CudaDriver& driver_;
  const CudaFunctions& cu_;
  const bool virtual_memory_;
  const bool exportable_;
  const Bytes granularity_;
  const Bytes large_piece_;
  const Bytes capacity_;

  mutable std::mutex mutex_;  // held during the driver's calls, which have a lock of their own
  CudaHandlePool pool_;
  CudaMappingTable mappings_;
  absl::btree_map<uintptr_t, Range> ranges_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_CUDA_MEMORY_H_
