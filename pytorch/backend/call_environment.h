// SPDX-License-Identifier: Apache-2.0
//
// CallEnvironment: the settings outside an operator's arguments on which its results depend: how
// many threads it may use, deterministic mode, matmul precision, whether oneDNN is on, denormals,
// the default element type, grad mode (oneDNN's LSTM has one output more under it). Part of every
// recorded call; a replay under other settings puts them back for its duration.
//
// Threads: Current() reads the calling thread's settings and shares one immutable object as long as
// they do not change. Scope changes process-wide settings of torch for a moment where they differ,
// as torch offers no others; the program would have to change them while an operator runs to
// notice.

#ifndef EBBTIDE_PYTORCH_BACKEND_CALL_ENVIRONMENT_H_
#define EBBTIDE_PYTORCH_BACKEND_CALL_ENVIRONMENT_H_

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <memory>

namespace ebbtide {

struct CallEnvironment {
  // The operators whose float32 precision oneDNN lets one choose.
  static constexpr std::array<at::Float32Op, 3> kPrecisionOps = {
      at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};

  int threads = 1;
  bool deterministic = false;
  bool warn_only = false;
  bool fill_uninitialised = false;
  bool onednn = true;
  bool flush_denormals = false;
  bool grad_mode = true;
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  std::array<at::Float32Precision, kPrecisionOps.size()> precisions{};

  friend bool operator==(const CallEnvironment&, const CallEnvironment&) = default;

  static CallEnvironment Read();
  static std::shared_ptr<const CallEnvironment> Current();
  void Apply(const CallEnvironment& present) const;
};

// Runs a replay under `environment`.
class EnvironmentScope {
 public:
  explicit EnvironmentScope(const CallEnvironment& environment);
  ~EnvironmentScope();
  EnvironmentScope(const EnvironmentScope&) = delete;
  EnvironmentScope& operator=(const EnvironmentScope&) = delete;

 private:
  const CallEnvironment program_;
  const CallEnvironment& replay_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_CALL_ENVIRONMENT_H_
