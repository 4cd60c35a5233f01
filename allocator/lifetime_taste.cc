// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_taste.h"

#include <algorithm>
#include <cmath>

namespace ebbtide::internal {
namespace {

// Found by trial on minimalloc's problems; a factor of two either way costs little.
constexpr double kLearning = 0.1;   // how much of the weights a try replaces
constexpr double kBlameWeight = 4;  // what was most in the way weighs so much more
constexpr int kStaleMax = 30;       // shaken tries without progress before starting over
constexpr int kShakeSections = 10;  // to either side, at most

// x to the power of quarters / 4, from operations that are rounded alike everywhere.
double InQuarters(double x, int quarters) {
  const double root = std::sqrt(std::sqrt(x));
  double power = 1;
  for (; quarters > 0; --quarters) power *= root;
  return power;
}

}  // namespace

LifetimeTaste::LifetimeTaste(const PackProblem& problem)
    : problem_(problem),
      item_weights_(problem.items.size(), 1),
      section_weights_(problem.live.size(), 1) {
  now_.priorities.resize(problem.items.size());
  now_.losses.resize(problem.live.size());
}

void LifetimeTaste::Choose(int64_t height) {
  if (height != furthest_height_) furthest_placed_ = 0;
  furthest_height_ = height;
  shaken_ = furthest_placed_ > 0 && draws_.Next() < 0.5;
  if (shaken_) {
    Shake();
  } else {
    Draw(height);
  }
}

// A unit lost costs by how many its section can spare. Priorities mostly decide between placements
// that lose nothing.
void LifetimeTaste::Draw(int64_t height) {
  const double spare = static_cast<double>(height) * (0.005 + 0.04 * draws_.Next());
  const int length_power = draws_.Below(6), units_power = draws_.Below(6);
  const double share = std::ldexp(1, -3 - draws_.Below(11));
  const double noise = 0.5 * draws_.Next();
  double sum = 0;
  for (size_t i = 0; i < item_weights_.size(); ++i) {
    const PackItem& item = problem_.items[i];
    now_.priorities[i] = item_weights_[i] * item_weights_[i] *
                         InQuarters(item.last - item.first, length_power) *
                         InQuarters(static_cast<double>(item.units), units_power) *
                         (1 + noise * (draws_.Next() - 0.5));
    sum += now_.priorities[i];
  }
  for (double& priority : now_.priorities) priority *= share / sum;
  for (int s = 0; s < problem_.sections(); ++s) {
    const double slack = static_cast<double>(height - problem_.live[s]);
    now_.losses[s] = section_weights_[s] / ((slack + spare) * problem_.sections());
  }
}

void LifetimeTaste::Shake() {
  now_ = furthest_;
  const int reach = 1 + draws_.Below(kShakeSections);
  const int first = std::max(0, furthest_section_ - reach);
  const int last = std::min(problem_.sections(), furthest_section_ + reach + 1);
  const double item_shake = 5 * draws_.Next(), section_shake = 5 * draws_.Next();
  const auto shake = [&](double most) {
    const double factor = 1 + most * draws_.Next();
    return draws_.Next() < 0.5 ? factor : 1 / factor;
  };
  for (int i = 0; i < problem_.count(); ++i) {
    const PackItem& item = problem_.items[i];
    if (item.first < last && first < item.last) now_.priorities[i] *= shake(item_shake);
  }
  for (int s = first; s < last; ++s) now_.losses[s] *= shake(section_shake);
}

void LifetimeTaste::Learn(int placed, LifetimeSkyline::Blame* blame) {
  if (placed > furthest_placed_) stale_ = 0;
  if (placed >= furthest_placed_) {
    furthest_placed_ = placed;
    furthest_section_ = blame->section;
    furthest_ = now_;
  }
  if (shaken_ && ++stale_ > kStaleMax) furthest_placed_ = stale_ = 0;
  // What was in the way long ago matters less than what was just now.
  const auto learn = [](std::vector<int>& counts, std::vector<double>& weights) {
    const double most = std::max(1, *std::max_element(counts.begin(), counts.end()));
    for (size_t i = 0; i < counts.size(); ++i) {
      weights[i] += kLearning * (1 + kBlameWeight * counts[i] / most - weights[i]);
      counts[i] = 0;
    }
  };
  learn(blame->items, item_weights_);
  learn(blame->sections, section_weights_);
}

}  // namespace ebbtide::internal
