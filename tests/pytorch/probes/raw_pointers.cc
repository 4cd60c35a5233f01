// SPDX-License-Identifier: Apache-2.0
//
// A C++ extension as third parties write them: takes a tensor's data pointer, keeps it, and uses it
// later. The tensor comes as the address that Python calls `_cdata`.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace {

at::Tensor TensorAt(intptr_t address) {
  auto* impl = reinterpret_cast<c10::TensorImpl*>(address);
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl));
}

float* kept = nullptr;
const float* kept_const = nullptr;

}  // namespace

// The functions return 1 if torch threw; a ctypes call must not.
extern "C" int probe_keep(intptr_t tensor) try {
  kept = TensorAt(tensor).data_ptr<float>();
  return 0;
} catch (const c10::Error&) {
  return 1;
}

extern "C" int probe_keep_const(intptr_t tensor) try {
  kept_const = TensorAt(tensor).const_data_ptr<float>();
  return 0;
} catch (const c10::Error&) {
  return 1;
}

extern "C" float probe_read(int64_t index) { return kept[index]; }
extern "C" float probe_read_const(int64_t index) { return kept_const[index]; }
extern "C" void probe_write(int64_t index, float value) { kept[index] = value; }
