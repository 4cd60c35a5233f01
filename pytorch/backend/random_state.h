// SPDX-License-Identifier: Apache-2.0
//
// The whole state of a CPU generator: the engine, and the second halves of normal draws that it
// keeps for the next one. A call that moved the generator is replayed from the state before it.
//
// Captured and put back under the generator's own mutex. Snapshots are immutable and shared,
// because the state after one call is the state before the next.

#ifndef EBBTIDE_PYTORCH_BACKEND_RANDOM_STATE_H_
#define EBBTIDE_PYTORCH_BACKEND_RANDOM_STATE_H_

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <memory>
#include <optional>

namespace ebbtide {

class RandomState {
 public:
  // Null if `generator` is not a CPU generator.
  static std::shared_ptr<const RandomState> Capture(const at::Generator& generator);

  // Whether `generator` still is in this state.
  bool StillHolds(const at::Generator& generator) const;

  void Restore(const at::Generator& generator) const;

 private:
  explicit RandomState(at::CPUGeneratorImpl& generator);

  at::mt19937 engine_;
  std::optional<float> next_float_;
  std::optional<double> next_double_;
};

// Puts the default generator into `state` for as long as it lives, then back to where the program
// was.
class DefaultGeneratorScope {
 public:
  explicit DefaultGeneratorScope(const RandomState& state);
  ~DefaultGeneratorScope();
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

 private:
  std::shared_ptr<const RandomState> program_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_RANDOM_STATE_H_
