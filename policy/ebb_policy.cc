// SPDX-License-Identifier: Apache-2.0

#include "policy/ebb_policy.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "policy/score_index.h"

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
    return index_.Search(now, [&](const Value& value, double limit) -> ScoreIndex::Examined {
      if (value.pins > 0) return {0, kNever};
      const auto bytes = static_cast<double>(value.bytes.count());
      double cost = RebuildCost(value, limit * bytes);
      if (cost > limit * bytes) return {cost / bytes, std::nullopt};
      cost *= 1 + Dependents(value);
      const double stale =
          static_cast<double>(std::max<int64_t>((now - value.last_access).count(), 1));
      return {cost / bytes, cost / bytes / stale};
    });
  }

  void OnMemoryGained(Value* value) override {
    CandidatePolicy::OnMemoryGained(value);
    ForgetDependents(*value);
    ForgetAncestors(*value);
  }
  void OnDropped(Value* value) override { ForgetAncestors(*value); }

 protected:
  void OnAdded(Value* value) override {
    index_.Add(value, CostOf(*value->call) / static_cast<double>(value->bytes.count()));
  }
  void OnRemoved(Value* value) override { index_.Remove(value); }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // Rebuilding what hung on `value` has become cheaper.
  void ForgetDependents(const Value& value) {
    ++mark_;
    int walked = 0;
    readers_.assign(1, &value);
    while (!readers_.empty()) {
      const Value* read = readers_.back();
      readers_.pop_back();
      for (const Use* use = read->uses; use != nullptr; use = use->next) {
        if (use->call->policy_mark == mark_) continue;
        use->call->policy_mark = mark_;
        if (++walked > kLongestWalk) return index_.ForgetAll();
        for (const Call::Output& output : use->call->outputs) {
          if (output.value == nullptr) continue;
          if (IsCandidate(*output.value)) index_.Forget(output.value);
          if (output.value->memory == nullptr) readers_.push_back(output.value);
        }
      }
    }
  }

  // What evicted calls wait for has become less: `value` waits no longer.
  void ForgetAncestors(const Value& value) {
    if (value.call == nullptr) return;
    ++mark_;
    int walked = 0;
    work_.assign(1, value.call);
    while (!work_.empty()) {
      const Call* call = work_.back();
      work_.pop_back();
      for (const Use& use : call->inputs) {
        if (IsCandidate(*use.value)) index_.Forget(use.value);
        Call* maker = use.value->call;
        if (use.value->memory != nullptr || maker == nullptr) continue;
        if (maker->policy_mark == mark_) continue;
        maker->policy_mark = mark_;
        if (++walked > kLongestWalk) return index_.ForgetAll();
        work_.push_back(maker);
      }
    }
  }

  // A(value); what was counted so far once that is above `limit`.
  double RebuildCost(const Value& value, double limit) {
    ++mark_;
    double cost = 0;
    work_.assign(1, value.call);
    value.call->policy_mark = mark_;
    while (!work_.empty()) {
      const Call* call = work_.back();
      work_.pop_back();
      cost += CostOf(*call);
      if (cost > limit) break;
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

  // D(value).
  int Dependents(const Value& value) {
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
      }
    }
    return found;
  }

  ScoreIndex index_;
  // Kept between decisions for their memory.
  std::vector<Call*> work_;
  std::vector<const Value*> readers_;
  uint64_t mark_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeEbbPolicy(Bytes min_bytes) {
  return std::make_unique<EbbPolicy>(min_bytes);
}

}  // namespace ebbtide
