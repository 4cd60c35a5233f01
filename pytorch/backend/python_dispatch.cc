// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/python_dispatch.h"

#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>

#include <string>
#include <utility>

#include "pytorch/backend/dispatch_key.h"

namespace ebbtide {
namespace {

// Takes the hook's key out of the thread's excluded ones while it lives.
class HookInSight {
 public:
  // Not where the hook itself has switched itself off: around a kernel.
  HookInSight()
      : excluded_(c10::impl::tls_is_dispatch_key_excluded(HookKey()) &&
                  !c10::impl::tls_is_dispatch_key_excluded(HookOffKey())) {
    if (excluded_) c10::impl::tls_set_dispatch_key_excluded(HookKey(), false);
  }
  ~HookInSight() {
    if (excluded_) c10::impl::tls_set_dispatch_key_excluded(HookKey(), true);
  }
  HookInSight(const HookInSight&) = delete;
  HookInSight& operator=(const HookInSight&) = delete;

 private:
  const bool excluded_;
};

// Torch's own table of calls into Python, with one of them wrapped.
class Interpreter final : public c10::impl::PyInterpreterVTable {
 public:
  explicit Interpreter(const c10::impl::PyInterpreterVTable* torch) : torch_(torch) {}

  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    const HookInSight in_sight;
    torch_->dispatch(op, stack);
  }

  // The others, unchanged.
  std::string name() const override { return torch_->name(); }
  void incref(PyObject* object) const override { torch_->incref(object); }
  void decref(PyObject* object) const override { torch_->decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override {
    return torch_->try_incref(slot);
  }
  size_t refcnt(PyObject* object) const override { return torch_->refcnt(object); }
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl* tensor) const override {
    return torch_->detach(tensor);
  }
  void reportErrorCallback(PyObject* callback, c10::DispatchKey key) const override {
    torch_->reportErrorCallback(callback, key);
  }
  void python_op_registration_trampoline(const c10::OperatorHandle& op, c10::DispatchKey key,
                                         c10::DispatchKeySet keys, torch::jit::Stack* stack,
                                         bool with_keyset, bool with_op) const override {
    torch_->python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string op, const char* pymodule,
                                              const char* context) const override {
    torch_->throw_abstract_impl_not_imported_error(std::move(op), pymodule, context);
  }
  void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) const override {
    torch_->python_dispatcher(op, keys, stack);
  }
  bool is_contiguous(const c10::TensorImpl* tensor, at::MemoryFormat format) const override {
    return torch_->is_contiguous(tensor, format);
  }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl* tensor,
                                 at::MemoryFormat format) const override {
    return torch_->sym_is_contiguous(tensor, format);
  }
  bool is_strides_like(const c10::TensorImpl* tensor, at::MemoryFormat format) const override {
    return torch_->is_strides_like(tensor, format);
  }
  bool is_non_overlapping_and_dense(const c10::TensorImpl* tensor) const override {
    return torch_->is_non_overlapping_and_dense(tensor);
  }
  c10::Device device(const c10::TensorImpl* tensor) const override {
    return torch_->device(tensor);
  }
  int64_t dim(const c10::TensorImpl* tensor) const override { return torch_->dim(tensor); }
  c10::IntArrayRef strides(const c10::TensorImpl* tensor) const override {
    return torch_->strides(tensor);
  }
  c10::IntArrayRef sizes(const c10::TensorImpl* tensor) const override {
    return torch_->sizes(tensor);
  }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl* tensor) const override {
    return torch_->sym_sizes(tensor);
  }
  c10::Layout layout(const c10::TensorImpl* tensor) const override {
    return torch_->layout(tensor);
  }
  int64_t numel(const c10::TensorImpl* tensor) const override { return torch_->numel(tensor); }
  c10::SymInt sym_numel(const c10::TensorImpl* tensor) const override {
    return torch_->sym_numel(tensor);
  }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl* tensor) const override {
    return torch_->sym_strides(tensor);
  }
  c10::SymInt sym_storage_offset(const c10::TensorImpl* tensor) const override {
    return torch_->sym_storage_offset(tensor);
  }
  void trace_gpu_event_creation(c10::DeviceType device, uintptr_t event) const override {
    torch_->trace_gpu_event_creation(device, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType device, uintptr_t event) const override {
    torch_->trace_gpu_event_deletion(device, event);
  }
  void trace_gpu_event_record(c10::DeviceType device, uintptr_t event,
                              uintptr_t stream) const override {
    torch_->trace_gpu_event_record(device, event, stream);
  }
  void trace_gpu_event_wait(c10::DeviceType device, uintptr_t event,
                            uintptr_t stream) const override {
    torch_->trace_gpu_event_wait(device, event, stream);
  }
  void trace_gpu_memory_allocation(c10::DeviceType device, uintptr_t ptr) const override {
    torch_->trace_gpu_memory_allocation(device, ptr);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType device, uintptr_t ptr) const override {
    torch_->trace_gpu_memory_deallocation(device, ptr);
  }
  void trace_gpu_stream_creation(c10::DeviceType device, uintptr_t stream) const override {
    torch_->trace_gpu_stream_creation(device, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType device) const override {
    torch_->trace_gpu_device_synchronization(device);
  }
  void trace_gpu_stream_synchronization(c10::DeviceType device, uintptr_t stream) const override {
    torch_->trace_gpu_stream_synchronization(device, stream);
  }
  void trace_gpu_event_synchronization(c10::DeviceType device, uintptr_t event) const override {
    torch_->trace_gpu_event_synchronization(device, event);
  }
  void reset_backward_hooks(const c10::TensorImpl* tensor) const override {
    torch_->reset_backward_hooks(tensor);
  }

 private:
  const c10::impl::PyInterpreterVTable* const torch_;
};

}  // namespace

void KeepHookInPythonDispatch() {
  if constexpr (kHookAbovePython) {
    c10::impl::PyInterpreter* const python = c10::impl::getGlobalPyInterpreter();
    // Never destroyed: torch puts a table of its own in its place when Python ends.
    python->vtable_ = new Interpreter(python->vtable_);
  }
}

}  // namespace ebbtide
