// SPDX-License-Identifier: Apache-2.0
#include "tests/tracker/pattern/programs.h"

#include <utility>

namespace ebbtide {
namespace {

enum Operation { kLoad, kForward, kLoss, kBackward, kZero, kStep };

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

}  // namespace

void ChainProgram::Add(int operation, int layer, int shape,
                       std::vector<RecordedCall::Touched> touched, Calls* calls) {
  RecordedCall call;
  call.signature = Mix(Mix(Mix(Mix(seed_ + 1) + operation) + layer) + shape);
  call.touched = std::move(touched);
  // From 1 to 8 microseconds, and up to a tenth more.
  const int64_t usual = 1000 * (1 + static_cast<int64_t>(call.signature % 8));
  call.duration = Nanos(usual + static_cast<int64_t>(draw_() % (usual / 10)));
  calls->push_back(std::move(call));
}

void ChainProgram::Forward(int shape, bool keep, Calls* calls) {
  Add(kLoad, 0, shape, {{activation(0), RecordedCall::kMade}}, calls);
  for (int i = 0; i < layers_; ++i) {
    std::vector<RecordedCall::Touched> touched = {{activation(i), RecordedCall::kRead},
                                                  {parameter(i), RecordedCall::kRead},
                                                  {activation(i + 1), RecordedCall::kMade}};
    if (!keep) touched.push_back({activation(i), RecordedCall::kDropped});
    Add(kForward, i, shape, std::move(touched), calls);
  }
}

void ChainProgram::Evaluate(int shape, Calls* calls) {
  Forward(shape, false, calls);
  calls->back().touched.push_back({activation(layers_), RecordedCall::kDropped});
}

void ChainProgram::MicroStep(int shape, Calls* calls) {
  Forward(shape, true, calls);
  Add(kLoss, 0, shape,
      {{activation(layers_), RecordedCall::kRead},
       {error(layers_), RecordedCall::kMade},
       {activation(layers_), RecordedCall::kDropped}},
      calls);
  for (int i = layers_ - 1; i >= 0; --i) {
    Add(kBackward, i, shape,
        {{error(i + 1), RecordedCall::kRead},
         {activation(i), RecordedCall::kRead},
         {parameter(i), RecordedCall::kRead},
         {gradient(i), RecordedCall::kInPlace},
         {error(i), RecordedCall::kMade},
         {error(i + 1), RecordedCall::kDropped},
         {activation(i), RecordedCall::kDropped}},
        calls);
  }
  calls->back().touched.push_back({error(0), RecordedCall::kDropped});
}

void ChainProgram::ZeroGradients(Calls* calls) {
  for (int i = 0; i < layers_; ++i) {
    Add(kZero, i, 0, {{gradient(i), RecordedCall::kInPlace}}, calls);
  }
}

void ChainProgram::Optimize(Calls* calls) {
  for (int i = 0; i < layers_; ++i) {
    Add(kStep, i, 0, {{parameter(i), RecordedCall::kInPlace}, {gradient(i), RecordedCall::kRead}},
        calls);
  }
}

void ChainProgram::Train(int shape, Calls* calls) {
  ZeroGradients(calls);
  MicroStep(shape, calls);
  Optimize(calls);
}

}  // namespace ebbtide
