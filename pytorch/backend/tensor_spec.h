// SPDX-License-Identifier: Apache-2.0
//
// TensorSpec: a tensor argument of a recorded call, without its storage: which of the call's inputs
// it looks at, and how (sizes, strides, offset, element type, and the flags that change what an
// operator computes: wrapped number, conjugate and negative bit). From it and an address the same
// argument can be made again.
//
// Plain values; safe on any thread. A spec refers to no storage, so that recording a call never
// keeps a program's memory alive.

#ifndef EBBTIDE_PYTORCH_BACKEND_TENSOR_SPEC_H_
#define EBBTIDE_PYTORCH_BACKEND_TENSOR_SPEC_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"

namespace ebbtide {

struct TensorSpec {
  // The tensor is undefined, or has no bytes, so that it needs no input.
  static constexpr int32_t kUndefined = -2;
  static constexpr int32_t kNoBytes = -1;
  // Its storage is none of the call's arguments.
  static constexpr int32_t kUnknown = -3;

  int32_t input = kUndefined;
  bool wrapped_number = false;
  caffe2::TypeMeta dtype;
  c10::DispatchKeySet keys;
  int64_t offset = 0;
  absl::InlinedVector<int64_t, 4> sizes;
  absl::InlinedVector<int64_t, 4> strides;
};

// The storage of a tensor that is nothing but a view of one; null if it has none of its own
// (sparse, nested, quantized and opaque tensors, meta tensors, symbolic sizes).
c10::StorageImpl* PlainStorage(const at::Tensor& tensor);

// Whether the storage has memory that could be managed.
inline bool HasBytes(const c10::StorageImpl& storage) {
  return storage.device_type() == c10::kCPU && storage.nbytes() > 0;
}

// Calls `visit` with every storage that the tensor's content lies in: one for a plain tensor, those
// of its parts for a sparse or nested one. False if there are storages that cannot be reached.
bool VisitStorages(const at::Tensor& tensor, absl::FunctionRef<void(c10::StorageImpl&)> visit);

// REQUIRES: the tensor is undefined or PlainStorage is not null. `input` is the index of its
// storage.
TensorSpec DescribeTensor(const at::Tensor& tensor, int32_t input);

// The same argument over the `bytes` bytes at `memory`, which it borrows.
at::Tensor MakeTensor(const TensorSpec& spec, void* memory, size_t bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_TENSOR_SPEC_H_
