// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/handle_pool.h"

#include <algorithm>
#include <iterator>
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
  std::vector<CudaPiece> kept;
  for (const CudaPiece& piece : pieces) {
    if (piece.created) {
      Release(piece).IgnoreError();  // Refused: it is listed, and tried again.
    } else {
      kept.push_back(piece);
    }
  }
  Put(kept);
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
  if (room_ != nullptr) Trim(room_());
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

void CudaHandlePool::Put(const std::vector<CudaPiece>& pieces) {
  Bytes limit = limit_;
  if (room_ != nullptr) {
    // The owner still counts them as committed.
    Bytes room = room_();
    for (const CudaPiece& piece : pieces) room += piece.size;
    limit = std::min(limit, room);
  }
  for (const CudaPiece& piece : pieces) {
    if (piece.exported || pooled() + piece.size > limit) {
      Release(piece).IgnoreError();
      continue;
    }
    kept_[piece.size].push_back(piece.handle);
    pooled_ += piece.size;
  }
}

void CudaHandlePool::Trim(Bytes most) {
  while (!kept_.empty() && pooled() > most) {
    const auto largest = std::prev(kept_.end());
    const CudaPiece piece{.handle = largest->second.back(), .size = largest->first};
    largest->second.pop_back();
    if (largest->second.empty()) kept_.erase(largest);
    pooled_ -= piece.size;
    Release(piece).IgnoreError();
  }
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
