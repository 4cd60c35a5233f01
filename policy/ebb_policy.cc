// SPDX-License-Identifier: Apache-2.0

#include "policy/ebb_policy.h"

#include <algorithm>
#include <cstdint>

namespace ebbtide {
namespace {

// The one keeps calls too short to measure from being free.
double CostOf(const Call& call) { return static_cast<double>(call.cost.count()) + 1.0; }

// What the program has consumed stays known without memory: a whole backward pass may hang on it.
constexpr int kLongestWalk = 256;

class EbbPolicy : public CandidatePolicy {
 public:
  explicit EbbPolicy(Bytes min_bytes) : CandidatePolicy(min_bytes) {}

  absl::string_view name() const override { return "ebb"; }

  Value* ChooseVictim(Nanos now) override {
    bounds_.clear();
    for (Value* value : candidates()) {
      if (value->pins > 0) continue;
      const double stale =
          static_cast<double>(std::max<int64_t>((now - value->last_access).count(), 1));
      const double worth = static_cast<double>(value->bytes.count()) * stale;
      bounds_.push_back({CostOf(*value->call) / worth, worth, value});
    }
    std::make_heap(bounds_.begin(), bounds_.end());
    Value* best = nullptr;
    double best_score = 0;
    while (!bounds_.empty()) {
      std::pop_heap(bounds_.begin(), bounds_.end());
      const Bound bound = bounds_.back();
      bounds_.pop_back();
      if (best != nullptr && bound.score >= best_score) break;
      const double limit = best == nullptr ? -1 : best_score * bound.worth;
      double cost = RebuildCost(*bound.value, limit);
      if (limit < 0 || cost <= limit) cost *= 1 + Dependents(*bound.value, limit / cost);
      const double score = cost / bound.worth;
      if (best == nullptr || score < best_score) {
        best = bound.value;
        best_score = score;
      }
    }
    return best;
  }

 private:
  struct Bound {
    double score;
    double worth;
    Value* value;
    // A heap's top is its largest element; equal scores are told apart by age, so that every run
    // decides alike.
    bool operator<(const Bound& other) const {
      return score != other.score ? score > other.score : value->id > other.value->id;
    }
  };

  // A(value); any number above `limit`, unless that is negative, once the sum has passed it.
  double RebuildCost(const Value& value, double limit) {
    ++mark_;
    double cost = 0;
    work_.assign(1, value.call);
    value.call->policy_mark = mark_;
    while (!work_.empty()) {
      const Call* call = work_.back();
      work_.pop_back();
      cost += CostOf(*call);
      if (limit >= 0 && cost > limit) break;
      for (const Use& use : call->inputs) {
        Call* maker = use.value->call;
        if (use.value->memory != nullptr || maker == nullptr) continue;
        if (maker->policy_mark == mark_) continue;
        maker->policy_mark = mark_;
        work_.push_back(maker);
      }
    }
    return cost;
  }

  // D(value); stops once the number is above `limit`, unless that is negative.
  int Dependents(const Value& value, double limit) {
    ++mark_;
    int found = 0;
    int walked = 0;
    readers_.assign(1, &value);
    while (!readers_.empty()) {
      const Value* read = readers_.back();
      readers_.pop_back();
      for (const Use* use = read->uses; use != nullptr; use = use->next) {
        if (use->call->policy_mark == mark_) continue;
        use->call->policy_mark = mark_;
        if (++walked > kLongestWalk) return found;
        bool awaited = false;
        for (const Call::Output& output : use->call->outputs) {
          if (output.value == nullptr || output.value->memory != nullptr) continue;
          awaited |= output.value->storage != nullptr;
          readers_.push_back(output.value);
        }
        found += awaited ? 1 : 0;
        if (limit >= 0 && found > limit) return found;
      }
    }
    return found;
  }

  // Kept between decisions for their memory.
  std::vector<Bound> bounds_;
  std::vector<Call*> work_;
  std::vector<const Value*> readers_;
  uint64_t mark_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeEbbPolicy(Bytes min_bytes) {
  return std::make_unique<EbbPolicy>(min_bytes);
}

}  // namespace ebbtide
