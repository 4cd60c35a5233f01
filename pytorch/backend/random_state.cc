// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/random_state.h"

#include <cstring>
#include <mutex>

namespace ebbtide {
namespace {

at::CPUGeneratorImpl* CpuGenerator(const at::Generator& generator) {
  if (!generator.defined() || generator.device().type() != c10::kCPU) return nullptr;
  return at::check_generator<at::CPUGeneratorImpl>(generator);
}

bool SameEngine(const at::mt19937& a, const at::mt19937& b) {
  const at::mt19937_data_pod left = a.data();
  const at::mt19937_data_pod right = b.data();
  return left.seed_ == right.seed_ && left.left_ == right.left_ && left.seeded_ == right.seeded_ &&
         left.next_ == right.next_ && left.state_ == right.state_;
}

}  // namespace

RandomState::RandomState(at::CPUGeneratorImpl& generator)
    : engine_(generator.engine()),
      next_float_(generator.next_float_normal_sample()),
      next_double_(generator.next_double_normal_sample()) {}

std::shared_ptr<const RandomState> RandomState::Capture(const at::Generator& generator) {
  at::CPUGeneratorImpl* impl = CpuGenerator(generator);
  if (impl == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return std::shared_ptr<const RandomState>(new RandomState(*impl));
}

bool RandomState::StillHolds(const at::Generator& generator) const {
  at::CPUGeneratorImpl* impl = CpuGenerator(generator);
  if (impl == nullptr) return false;
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return SameEngine(engine_, impl->engine()) && next_float_ == impl->next_float_normal_sample() &&
         next_double_ == impl->next_double_normal_sample();
}

void RandomState::Restore(const at::Generator& generator) const {
  at::CPUGeneratorImpl* impl = CpuGenerator(generator);
  if (impl == nullptr) return;
  std::lock_guard<std::mutex> lock(impl->mutex_);
  impl->set_engine(engine_);
  impl->set_next_float_normal_sample(next_float_);
  impl->set_next_double_normal_sample(next_double_);
}

DefaultGeneratorScope::DefaultGeneratorScope(const RandomState& state)
    : program_(RandomState::Capture(at::detail::getDefaultCPUGenerator())) {
  state.Restore(at::detail::getDefaultCPUGenerator());
}

DefaultGeneratorScope::~DefaultGeneratorScope() {
  program_->Restore(at::detail::getDefaultCPUGenerator());
}

}  // namespace ebbtide
