// SPDX-License-Identifier: Apache-2.0
// Operators whose result differs each time they run, which their schemas do not say.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace {

int64_t ticks = 0;

at::Tensor Ticking(const at::Tensor& x) { return x + ++ticks; }

// Reads and writes by raw pointers, as kernels of extensions do.
at::Tensor RawTicking(const at::Tensor& x) {
  at::Tensor result = at::empty_like(x);
  ++ticks;
  const float* from = x.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] + static_cast<float>(ticks);
  return result;
}

}  // namespace

TORCH_LIBRARY(ebbtide_test, library) {
  library.def("ticking(Tensor x) -> Tensor");
  library.def("raw_ticking(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(ebbtide_test, CPU, library) {
  library.impl("ticking", &Ticking);
  library.impl("raw_ticking", &RawTicking);
}
