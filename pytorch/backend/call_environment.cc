// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/call_environment.h"

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ebbtide {
namespace {

bool FlushesDenormals() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#else
  return false;
#endif
}

}  // namespace

CallEnvironment CallEnvironment::Read() {
  const at::Context& context = at::globalContext();
  CallEnvironment environment;
  environment.threads = at::get_num_threads();
  environment.deterministic = context.deterministicAlgorithms();
  environment.warn_only = context.deterministicAlgorithmsWarnOnly();
  environment.fill_uninitialised = context.deterministicFillUninitializedMemory();
  environment.onednn = context.userEnabledMkldnn();
  environment.flush_denormals = FlushesDenormals();
  environment.grad_mode = c10::GradMode::is_enabled();
  environment.default_dtype = c10::get_default_dtype_as_scalartype();
  for (size_t i = 0; i < kPrecisionOps.size(); ++i) {
    environment.precisions[i] =
        context.float32Precision(at::Float32Backend::MKLDNN, kPrecisionOps[i]);
  }
  return environment;
}

std::shared_ptr<const CallEnvironment> CallEnvironment::Current() {
  static thread_local std::shared_ptr<const CallEnvironment> last;
  const CallEnvironment now = Read();
  if (last == nullptr || !(*last == now)) last = std::make_shared<const CallEnvironment>(now);
  return last;
}

void CallEnvironment::Apply(const CallEnvironment& present) const {
  at::Context& context = at::globalContext();
  if (threads != present.threads) at::set_num_threads(threads);
  if (deterministic != present.deterministic || warn_only != present.warn_only) {
    context.setDeterministicAlgorithms(deterministic, warn_only);
  }
  if (fill_uninitialised != present.fill_uninitialised) {
    context.setDeterministicFillUninitializedMemory(fill_uninitialised);
  }
  if (onednn != present.onednn) context.setUserEnabledMkldnn(onednn);
  if (flush_denormals != present.flush_denormals) context.setFlushDenormal(flush_denormals);
  if (grad_mode != present.grad_mode) c10::GradMode::set_enabled(grad_mode);
  if (default_dtype != present.default_dtype) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
  }
  for (size_t i = 0; i < kPrecisionOps.size(); ++i) {
    if (precisions[i] == present.precisions[i]) continue;
    context.setFloat32Precision(at::Float32Backend::MKLDNN, kPrecisionOps[i], precisions[i]);
  }
}

EnvironmentScope::EnvironmentScope(const CallEnvironment& environment)
    : program_(CallEnvironment::Read()), replay_(environment) {
  if (!(program_ == replay_)) replay_.Apply(program_);
}

EnvironmentScope::~EnvironmentScope() {
  if (!(program_ == replay_)) program_.Apply(replay_);
}

}  // namespace ebbtide
