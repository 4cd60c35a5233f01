// SPDX-License-Identifier: Apache-2.0
//
// A made-up training program, as its allocator sees it: layers of several kinds that keep some of
// their outputs for the backward pass and drop others, workspaces that live for one call, gradients
// that live from the backward pass to the middle of the next forward pass or to the step, and the
// result of the last iteration, which dies only once the next one has replaced it. The same seed
// gives the same program; `scale` stands for the shape of a batch.
//
// One thread at a time; owns its records. Block ids are never reused.

#ifndef EBBTIDE_TESTS_ALLOCATOR_TRAINING_PROGRAM_H_
#define EBBTIDE_TESTS_ALLOCATOR_TRAINING_PROGRAM_H_

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace ebbtide {

struct ProgramStep {
  int64_t id;     // of the block
  int64_t bytes;  // 0: it is freed
};

class TrainingProgram {
 public:
  TrainingProgram(int layers, uint32_t seed) : draw_(seed) {
    for (int i = 0; i < layers; ++i) {
      layers_.push_back({Size(16), Size(20), static_cast<int>(draw_() % 4), draw_() % 3 == 0});
    }
  }

  // The steps of one iteration of training, or of one of evaluation.
  std::vector<ProgramStep> Train(int64_t scale) {
    steps_.clear();
    Forward(scale, true);
    Backward(scale);
    for (size_t i = 0; i < layers_.size(); ++i) {  // the optimizer's temporaries
      const int64_t a = New(layers_[i].weight_bytes), b = New(layers_[i].weight_bytes);
      Drop(a);
      Drop(b);
    }
    return std::move(steps_);
  }
  std::vector<ProgramStep> Evaluate(int64_t scale) {
    steps_.clear();
    Forward(scale, false);
    return std::move(steps_);
  }

 private:
  struct Layer {
    int64_t weight_bytes, output_bytes;
    int inner;       // tensors within, of which every other one is kept for the backward pass
    bool workspace;  // of twice the output
  };

  // 512 bytes to 2^exponent + 9 doublings, most of them small, in multiples of 512.
  int64_t Size(int exponent) {
    const int shift = 6 + static_cast<int>(draw_() % (exponent - 6));
    return ((int64_t{1} << shift) + draw_() % (int64_t{1} << shift)) * 8 / 512 * 512 + 512;
  }
  int64_t New(int64_t bytes) {
    steps_.push_back({next_id_, bytes});
    return next_id_++;
  }
  void Drop(int64_t id) {
    if (id >= 0) steps_.push_back({id, 0});
  }
  static int64_t Scaled(int64_t bytes, int64_t scale) { return bytes * scale / 512 * 512 + 512; }

  void Forward(int64_t scale, bool training) {
    kept_.clear();
    int64_t input = New(Scaled(1 << 18, scale));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const int64_t bytes = Scaled(layer.output_bytes, scale);
      std::vector<int64_t> kept;
      const int64_t workspace = layer.workspace ? New(2 * bytes) : -1;
      for (int k = 0; k < layer.inner; ++k) {
        const int64_t inner = New(bytes / (k + 1) / 512 * 512 + 512);
        if (training && k % 2 == 0) {
          kept.push_back(inner);
        } else {
          Drop(inner);
        }
      }
      const int64_t output = New(bytes);
      Drop(workspace);
      if (training) {
        kept.push_back(input);
      } else {
        Drop(input);
      }
      kept_.push_back(kept);
      input = output;
      if (i == layers_.size() / 2) {  // the gradients are set to none, late
        for (int64_t gradient : gradients_) Drop(gradient);
        gradients_.clear();
      }
    }
    Drop(result_);
    result_ = input;
  }

  void Backward(int64_t scale) {
    int64_t flowing = New(Scaled(layers_.back().output_bytes, scale));
    for (size_t i = layers_.size(); i-- > 0;) {
      const Layer& layer = layers_[i];
      const int64_t bytes = Scaled(i > 0 ? layers_[i - 1].output_bytes : 1 << 18, scale);
      const int64_t workspace = layer.workspace ? New(2 * bytes) : -1;
      const int64_t weight_gradient = New(layer.weight_bytes);
      const int64_t next = New(bytes);
      Drop(workspace);
      Drop(flowing);
      for (int64_t kept : kept_[i]) Drop(kept);
      gradients_.push_back(weight_gradient);
      flowing = next;
    }
    Drop(flowing);
  }

  std::mt19937 draw_;
  std::vector<Layer> layers_;
  std::vector<ProgramStep> steps_;
  std::vector<std::vector<int64_t>> kept_;  // of each layer
  std::vector<int64_t> gradients_;
  int64_t result_ = -1;
  int64_t next_id_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_TRAINING_PROGRAM_H_
