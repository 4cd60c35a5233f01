// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/tensor_spec.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include <utility>

namespace ebbtide {
namespace {

constexpr c10::DispatchKeySet kNotPlain({c10::DispatchKey::Quantized, c10::DispatchKey::MkldnnCPU,
                                         c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                         c10::DispatchKey::NestedTensor, c10::DispatchKey::Python,
                                         c10::DispatchKey::ZeroTensor});

void Visit(const at::Tensor& part, absl::FunctionRef<void(c10::StorageImpl&)> visit) {
  if (part.defined() && part.has_storage()) {
    visit(*part.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  }
}

}  // namespace

c10::StorageImpl* PlainStorage(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // The sets hold functionality and backend bits apart; Mkldnn, sparse and nested ones are all
  // functionalities or have no storage at all.
  if (!impl->has_storage() || impl->has_symbolic_sizes_strides()) return nullptr;
  if (impl->layout() != c10::kStrided || !impl->device().is_cpu()) return nullptr;
  if (impl->key_set().has_any(kNotPlain) || impl->is_nested()) return nullptr;
  return impl->unsafe_storage().unsafeGetStorageImpl();
}

bool VisitStorages(const at::Tensor& tensor, absl::FunctionRef<void(c10::StorageImpl&)> visit) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (tensor.layout() == c10::kSparse) {
    const auto* sparse = static_cast<const at::SparseTensorImpl*>(impl);
    Visit(sparse->indices(), visit);
    Visit(sparse->values(), visit);
    return true;
  }
  const c10::Layout layout = tensor.layout();
  if (layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
      layout == c10::kSparseBsc) {
    const auto* sparse = static_cast<const at::SparseCsrTensorImpl*>(impl);
    Visit(sparse->compressed_indices(), visit);
    Visit(sparse->plain_indices(), visit);
    Visit(sparse->values(), visit);
    return true;
  }
  if (tensor.is_nested() && impl->key_set().has(c10::DispatchKey::NestedTensor)) {
    const auto* nested = static_cast<const at::native::NestedTensorImpl*>(impl);
    Visit(nested->get_nested_sizes(), visit);
    Visit(nested->get_nested_strides(), visit);
    Visit(nested->get_storage_offsets(), visit);
    // The buffer is the tensor's own storage.
  }
  if (!impl->has_storage()) return tensor.layout() != c10::kMkldnn;
  visit(*impl->unsafe_storage().unsafeGetStorageImpl());
  return true;
}

TensorSpec DescribeTensor(const at::Tensor& tensor, int32_t input) {
  TensorSpec spec;
  if (!tensor.defined()) return spec;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  spec.input = input;
  spec.wrapped_number = impl->is_wrapped_number();
  spec.dtype = impl->dtype();
  spec.keys = impl->key_set();
  spec.offset = impl->storage_offset();
  spec.sizes.assign(impl->sizes().begin(), impl->sizes().end());
  spec.strides.assign(impl->strides().begin(), impl->strides().end());
  return spec;
}

at::Tensor MakeTensor(const TensorSpec& spec, void* memory, size_t bytes) {
  if (spec.input == TensorSpec::kUndefined) return at::Tensor();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(memory, c10::Device(c10::kCPU)), /*allocator=*/nullptr, /*resizable=*/false);
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), spec.keys, spec.dtype);
  impl->set_sizes_and_strides(c10::IntArrayRef(spec.sizes.data(), spec.sizes.size()),
                              c10::IntArrayRef(spec.strides.data(), spec.strides.size()),
                              spec.offset);
  // A number stays one even where the operator turns it over: type promotion depends on it.
  if (spec.wrapped_number) impl->set_wrapped_number(true);
  return at::Tensor(std::move(impl));
}

}  // namespace ebbtide
