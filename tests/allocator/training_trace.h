// SPDX-License-Identifier: Apache-2.0
//
// A small maker of allocation traces that look like training. Parameters come first and stay.
// Each iteration has a batch of its own size; the forward pass makes activations that live until
// the backward pass comes back to their layer, last one first; gradients live until the optimizer
// has run; workspaces live for one operator; and the first optimizer step makes state that stays.
// At the end everything is freed.
//
// A trace is a plain value, the same for the same seed: safe on any thread, owns nothing but
// itself. To replay a trace of your own, fill the vector in another way.

#ifndef EBBTIDE_TESTS_ALLOCATOR_TRAINING_TRACE_H_
#define EBBTIDE_TESTS_ALLOCATOR_TRAINING_TRACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/bytes.h"

namespace ebbtide {

// Makes block number `block`, or frees it when the size is 0.
struct TraceEvent {
  int block = 0;
  Bytes size;

  bool is_free() const { return size == Bytes(0); }
};

struct TrainingTrace {
  std::vector<TraceEvent> events;  // each block is made once, then freed once
  int blocks = 0;
  Bytes peak_live;  // as asked for, without any rounding
};

struct TrainingTraceOptions {
  uint64_t seed = 1;
  int layers = 8;
  int iterations = 4;
  Bytes largest_parameter = Bytes(16'000'000);  // activations and workspaces: up to 4 times that
};

class TrainingTraceMaker {
 public:
  explicit TrainingTraceMaker(uint64_t seed) : random_(seed) {}

  TrainingTrace Make(const TrainingTraceOptions& options) {
    for (int i = 0; i < options.layers; ++i) {
      parameters_.push_back(Between(2'000, options.largest_parameter.count()));
    }
    std::vector<int> kept;
    for (int64_t size : parameters_) kept.push_back(New(size));
    for (int iteration = 0; iteration < options.iterations; ++iteration) {
      const std::vector<int> gradients = ForwardAndBackward();
      for (int64_t size : parameters_) {
        if (iteration == 0) kept.insert(kept.end(), {New(size), New(size)});  // as Adam's moments
        Workspace(size);
      }
      for (int gradient : gradients) Free(gradient);
    }
    for (int block : kept) Free(block);
    trace_.peak_live = Bytes(peak_);
    return trace_;
  }

 private:
  // Sizes of all magnitudes alike.
  int64_t Between(int64_t least, int64_t most) {
    std::uniform_real_distribution<> exponent(std::log(least), std::log(most));
    return static_cast<int64_t>(std::exp(exponent(random_)));
  }

  int New(int64_t size) {
    trace_.events.push_back({trace_.blocks, Bytes(size)});
    sizes_.push_back(size);
    live_ += size;
    peak_ = std::max(peak_, live_);
    return trace_.blocks++;
  }

  void Free(int block) {
    trace_.events.push_back({block, Bytes(0)});
    live_ -= sizes_[block];
  }

  void Workspace(int64_t size) { Free(New(size)); }

  // Returns the gradients of the parameters.
  std::vector<int> ForwardAndBackward() {
    const int64_t batch = Between(500, 2'000);  // in thousandths
    std::vector<int> activations = {New(1'000 * batch)};
    for (int64_t parameter : parameters_) {
      Workspace(parameter * batch / 500);
      activations.push_back(New(parameter * batch / 1'000));
      activations.push_back(New(64 + random_() % 2'000));  // what a normalisation keeps
    }
    std::vector<int> gradients;
    int flowing = New(4);  // the loss
    for (size_t i = parameters_.size(); i-- > 0;) {
      gradients.push_back(New(parameters_[i]));
      const int next = New(parameters_[i] * batch / 1'000);
      Workspace(parameters_[i] * batch / 700);
      Free(flowing);
      flowing = next;
      for (int last = 0; last < 2; ++last) {
        Free(activations.back());
        activations.pop_back();
      }
    }
    Free(flowing);
    Free(activations.back());
    return gradients;
  }

  std::mt19937_64 random_;
  std::vector<int64_t> parameters_;
  TrainingTrace trace_;
  std::vector<int64_t> sizes_;
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

inline TrainingTrace MakeTrainingTrace(const TrainingTraceOptions& options) {
  return TrainingTraceMaker(options.seed).Make(options);
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_TRAINING_TRACE_H_
