// SPDX-License-Identifier: Apache-2.0
//
// Training programs made of nothing but calls, for tests and benchmarks of tracker/pattern: a chain
// of layers with parameters, activations that the backward pass reads, gradients that accumulate,
// and an optimizer. Durations differ by a tenth from one time to the next.
//
// Threads: none. Ownership: plain values; the same seed makes the same program.

#ifndef EBBTIDE_TESTS_TRACKER_PATTERN_PROGRAMS_H_
#define EBBTIDE_TESTS_TRACKER_PATTERN_PROGRAMS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "tests/tracker/pattern/call_file.h"

namespace ebbtide {

class ChainProgram {
 public:
  // `layers` > 0. Programs with different seeds have no signature in common. Storages are numbered
  // from `first_storage` on, 4 * layers + 2 of them.
  ChainProgram(uint32_t seed, int layers, int32_t first_storage = 0)
      : seed_(seed), layers_(layers), first_(first_storage), draw_(seed) {}

  // Forward and backward on a batch of this shape: 2 * layers + 2 calls.
  void MicroStep(int shape, Calls* calls);
  // Zeroes gradients, one micro-step, optimizer: 4 * layers + 2 calls.
  void Train(int shape, Calls* calls);
  // Forward alone, with the signatures of MicroStep: layers + 1 calls.
  void Evaluate(int shape, Calls* calls);
  void ZeroGradients(Calls* calls);
  void Optimize(Calls* calls);

 private:
  int32_t parameter(int i) const { return first_ + i; }
  int32_t gradient(int i) const { return first_ + layers_ + i; }
  // Activation 0 is the batch.
  int32_t activation(int i) const { return first_ + 2 * layers_ + i; }
  int32_t error(int i) const { return first_ + 3 * layers_ + 1 + i; }
  void Add(int operation, int layer, int shape, std::vector<RecordedCall::Touched> touched,
           Calls* calls);
  void Forward(int shape, bool keep, Calls* calls);

  const uint32_t seed_;
  const int layers_;
  const int32_t first_;
  std::mt19937 draw_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_TRACKER_PATTERN_PROGRAMS_H_
