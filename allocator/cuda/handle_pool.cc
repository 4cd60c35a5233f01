// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/handle_pool.h"

#include <utility>

namespace ebbtide {

// The driver may be gone, or refuse: whatever it then still has ends with the process.
CudaHandlePool::~CudaHandlePool() { ReleaseAll().IgnoreError(); }

absl::Status CudaHandlePool::Get(int64_t count, Bytes size, std::vector<CudaPiece>* pieces) {
  std::vector<CudaPiece> got;
  got.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    absl::StatusOr<CudaPiece> piece = GetOne(size);
    if (!piece.ok()) {
      Unget(got);
      return piece.status();
    }
    got.push_back(*piece);
  }
  pieces->insert(pieces->end(), got.begin(), got.end());
  return absl::OkStatus();
}

void CudaHandlePool::Unget(const std::vector<CudaPiece>& pieces) {
  for (const CudaPiece& piece : pieces) {
    if (piece.created) {
      Release(piece).IgnoreError();  // Refused: it is listed, and tried again.
    } else {
      Put(piece);
    }
  }
}

absl::StatusOr<CudaPiece> CudaHandlePool::GetOne(Bytes size) {
  const auto found = kept_.find(size);
  if (found != kept_.end()) {
    const CuMemHandle handle = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) kept_.erase(found);
    pooled_ -= size;
    return CudaPiece{.handle = handle, .size = size};
  }
  absl::StatusOr<CudaPiece> piece = Create(size);
  if (!absl::IsResourceExhausted(piece.status()) || pooled() == Bytes(0)) return piece;
  // What we keep for ourselves, in other sizes, may be what is missing.
  ReleaseAll().IgnoreError();
  return Create(size);
}

absl::StatusOr<CudaPiece> CudaHandlePool::Create(Bytes size) {
  const CudaDriver& driver = context_.driver();
  CudaPiece piece{.size = size, .created = true};
  const CuResult result =
      driver.functions().mem_create(&piece.handle, size.count(), &properties_, 0);
  if (result != kCuSuccess) return driver.Check(result, "cuMemCreate");
  return piece;
}

absl::Status CudaHandlePool::Release(const CudaPiece& piece) {
  const CudaDriver& driver = context_.driver();
  const CuResult result = driver.functions().mem_release(piece.handle);
  if (result == kCuSuccess) return absl::OkStatus();
  refused_.push_back(piece);
  refused_size_ += piece.size;
  return driver.Check(result, "cuMemRelease");
}

void CudaHandlePool::Put(const CudaPiece& piece) {
  if (piece.exported || pooled() + piece.size > limit_) {
    Release(piece).IgnoreError();
    return;
  }
  kept_[piece.size].push_back(piece.handle);
  pooled_ += piece.size;
}

absl::Status CudaHandlePool::ReleaseAll() {
  std::vector<CudaPiece> all = std::exchange(refused_, {});
  for (const auto& [size, handles] : kept_) {
    for (CuMemHandle handle : handles) all.push_back({.handle = handle, .size = size});
  }
  kept_.clear();
  pooled_ = Bytes(0);
  refused_size_ = Bytes(0);
  absl::Status first;
  for (const CudaPiece& piece : all) first.Update(Release(piece));
  return first;
}

}  // namespace ebbtide
