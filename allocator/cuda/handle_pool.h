// SPDX-License-Identifier: Apache-2.0
//
// CudaHandlePool is where CudaMemory gets pieces of physical memory and where it brings them back:
// the driver's allocation handles. It keeps some of those that come back, by size, because creating
// one is the slowest of all virtual memory calls (193 us for 2 MiB on an A100, five times as long
// as mapping it and opening it for access).
//
// What it keeps is memory that others lack. It is limited, it is visible (pooled), what a budget
// has no room for goes before anything new is created, and all of it is given up before the device
// is said to be out of memory.
//
// Thread safety: none, the owner locks. Ownership: a handle from Get belongs to the caller until
// Put or Release; the pool gives back what it keeps when it is destroyed. To replace: see
// device_memory.h.

#ifndef EBBTIDE_ALLOCATOR_CUDA_HANDLE_POOL_H_
#define EBBTIDE_ALLOCATOR_CUDA_HANDLE_POOL_H_

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/cuda/context.h"
#include "allocator/device_memory.h"
#include "base/bytes.h"

namespace ebbtide {

struct CudaPiece {
  CuMemHandle handle = 0;
  Bytes size = Bytes(0);
  bool created = false;   // by the Get that returned it, so that undoing that Get releases it
  bool exported = false;  // another process may use it, so that it must not be used again here
};

class CudaHandlePool {
 public:
  // Creates handles with `properties`, keeps at most `limit` bytes of them. `context` must outlive
  // the pool.
  CudaHandlePool(const CudaContext* context, const CuMemAllocationProp& properties, Bytes limit)
      : context_(*context), properties_(properties), limit_(limit) {}
  ~CudaHandlePool();
  CudaHandlePool(const CudaHandlePool&) = delete;
  CudaHandlePool& operator=(const CudaHandlePool&) = delete;

  // Appends `count` pieces of `size` bytes (a positive multiple of the granularity) to `pieces`.
  // On error nothing is appended and nothing has changed, but that a pool whose memory was needed
  // is empty.
  // Errors: ResourceExhausted when the device has no more, also not after the pool was given up;
  // others as the driver says.
  absl::Status Get(int64_t count, Bytes size, std::vector<CudaPiece>* pieces);

  // Undoes a Get.
  void Unget(const std::vector<CudaPiece>& pieces);

  // Takes pieces back: keeps those that there is room for, gives the others to the device. A piece
  // that the driver refuses to take counts as pooled until it does.
  void Put(const std::vector<CudaPiece>& pieces);

  // See DeviceMemory::BoundRetained.
  void set_room(DeviceMemory::Room room) { room_ = std::move(room); }

  // Gives everything that is kept to the device.
  // Errors: the driver's, for the first handle that it refused; the others are released.
  absl::Status ReleaseAll();

  // Bytes that are kept now.
  Bytes pooled() const { return pooled_ + refused_size_; }
  const CuMemAllocationProp& properties() const { return properties_; }

 private:
  absl::StatusOr<CudaPiece> GetOne(Bytes size);
  absl::StatusOr<CudaPiece> Create(Bytes size);
  absl::Status Release(const CudaPiece& piece);
  // Gives pieces to the device, the largest first, until `most` bytes are left or none.
  void Trim(Bytes most);

  const CudaContext& context_;
  const CuMemAllocationProp properties_;
  const Bytes limit_;
  DeviceMemory::Room room_;
  absl::btree_map<Bytes, std::vector<CuMemHandle>> kept_;  // no vector is empty
  std::vector<CudaPiece> refused_;                         // the driver did not take them back
  Bytes pooled_;
  Bytes refused_size_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_HANDLE_POOL_H_
