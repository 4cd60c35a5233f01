// SPDX-License-Identifier: Apache-2.0
//
// CudaMappingTable knows which piece of physical memory is mapped at which address, and who may use
// it; it makes the driver's calls for that. Each change happens whole or not at all: a call that
// fails half-way is undone. If the driver refuses to undo it as well, the mapping stays on a list
// and is removed before its addresses are used again or freed; the caller never sees it.
//
// Thread safety: none, the owner locks and stands in a CudaContext::Scope. Ownership: it owns
// mappings, not the pieces: their handles come from its owner and go back to it. To replace: see
// device_memory.h.

#ifndef EBBTIDE_ALLOCATOR_CUDA_MAPPING_TABLE_H_
#define EBBTIDE_ALLOCATOR_CUDA_MAPPING_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "allocator/cuda/driver.h"
#include "allocator/cuda/handle_pool.h"
#include "base/bytes.h"

namespace ebbtide {

class CudaMappingTable {
 public:
  // [begin, begin + size)
  struct Span {
    uintptr_t begin;
    Bytes size;
  };

  // Mappings will be open to `device` alone until AddPeer. `driver` must outlive the table.
  CudaMappingTable(const CudaDriver* driver, CuDevice device);

  // Maps the pieces one behind the other from `address` on, and opens all of them for access with
  // one call. REQUIRES: the addresses are reserved.
  // Errors: InvalidArgument when something is mapped there; others as the driver says.
  absl::Status Map(uintptr_t address, const std::vector<CudaPiece>& pieces);

  // Unmaps a span with one call and appends its pieces to `pieces`.
  // Errors: InvalidArgument when the span is not made of whole mapped pieces; others as the driver
  // says. On error nothing has changed.
  absl::Status Unmap(Span span, std::vector<CudaPiece>* pieces);

  // Moves the pieces of `from` to `to`. They are mapped there before they are unmapped here, so
  // that undoing it needs no call but an unmap. Errors: as Map and Unmap; nothing has changed.
  absl::Status Move(Span from, uintptr_t to);

  // Unmaps everything in a span that begins and ends between pieces, one call a run. On error some
  // of it is still mapped; `pieces` has got those that are not.
  absl::Status Clear(Span span, std::vector<CudaPiece>* pieces);

  // Opens everything mapped in `spans` (in each of which the driver may be asked at once), and
  // everything mapped later, to another device; nothing when it is open already. On error nothing
  // has changed.
  absl::Status AddPeer(CuDevice device, const std::vector<Span>& spans);

  // The piece mapped around `address` and where it begins, or {nullptr, 0}.
  std::pair<CudaPiece*, uintptr_t> Find(uintptr_t address);

 private:
  absl::StatusOr<std::vector<CudaPiece>> WholePieces(Span span) const;
  std::vector<Span> Runs(Span span) const;
  void Record(uintptr_t address, const std::vector<CudaPiece>& pieces);
  void Forget(Span span);

  absl::Status SetAccess(Span span, const CuMemAccessDesc* access, size_t count);
  absl::Status DriverUnmap(Span span);
  void UnmapOrRemember(Span span);
  absl::Status DropStale(Span span);

  const CudaDriver& driver_;
  const CudaFunctions& cu_;
  std::vector<CuMemAccessDesc> access_;  // the own device first
  absl::btree_map<uintptr_t, CudaPiece> pieces_;
  absl::btree_map<uintptr_t, Bytes> stale_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_MAPPING_TABLE_H_
