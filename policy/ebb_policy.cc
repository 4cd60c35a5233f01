// SPDX-License-Identifier: Apache-2.0

#include "policy/ebb_policy.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/score_index.h"

namespace ebbtide {
namespace {

// What the program has consumed stays known without memory: a whole backward pass may hang on it.
constexpr int kLongestWalk = 256;

class EbbPolicy : public CandidatePolicy {
 public:
  explicit EbbPolicy(Bytes min_bytes) : CandidatePolicy(min_bytes) {}

  absl::string_view name() const override { return "ebb"; }

  Value* ChooseVictim(Nanos now) override {
    return index_.Search(now, [this](const Value& value, double limit) {
      const double weight = RebuildWeight(value, limit);
      return weight > limit ? weight : weight * (1 + Dependents(value));
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
  // Calls `visit` with `call` and each call that running it again would run before, once, until it
  // returns false.
  template <typename Visit>
  void WalkRebuild(Call* call, Visit visit) {
    ++mark_;
    call->policy_mark = mark_;
    rebuilt_.assign(1, call);
    while (!rebuilt_.empty()) {
      const Call* next = rebuilt_.back();
      rebuilt_.pop_back();
      if (!visit(*next)) return;
      for (const Use& use : next->inputs) {
        Call* maker = use.value->call;
        if (use.value->memory != nullptr || maker == nullptr) continue;
        if (maker->policy_mark == mark_) continue;
        maker->policy_mark = mark_;
        rebuilt_.push_back(maker);
      }
    }
  }

  // Calls `visit` with each call that reads `value`, directly or through values without memory,
  // once, until it returns false.
  template <typename Visit>
  void WalkReaders(const Value& value, Visit visit) {
    ++mark_;
    read_.assign(1, &value);
    while (!read_.empty()) {
      const Value* next = read_.back();
      read_.pop_back();
      for (const Use* use = next->uses; use != nullptr; use = use->next) {
        if (use->call->policy_mark == mark_) continue;
        use->call->policy_mark = mark_;
        if (!visit(*use->call)) return;
        for (const Call::Output& output : use->call->outputs) {
          if (output.value != nullptr && output.value->memory == nullptr) {
            read_.push_back(output.value);
          }
        }
      }
    }
  }

  // Rebuilding what hung on `value` has become cheaper.
  void ForgetDependents(const Value& value) {
    int walked = 0;
    WalkReaders(value, [&](const Call& call) {
      for (const Call::Output& output : call.outputs) {
        if (output.value != nullptr && IsCandidate(*output.value)) index_.Forget(output.value);
      }
      return ++walked <= kLongestWalk;
    });
    if (walked > kLongestWalk) index_.ForgetAll();
  }

  // What evicted calls wait for has become less: `value` waits no longer.
  void ForgetAncestors(const Value& value) {
    if (value.call == nullptr) return;
    int walked = 0;
    WalkRebuild(value.call, [&](const Call& call) {
      for (const Use& use : call.inputs) {
        if (IsCandidate(*use.value)) index_.Forget(use.value);
      }
      return ++walked <= kLongestWalk;
    });
    if (walked > kLongestWalk) index_.ForgetAll();
  }

  // A(value) per byte; what was counted so far once that is above `limit`.
  double RebuildWeight(const Value& value, double limit) {
    const auto bytes = static_cast<double>(value.bytes.count());
    double cost = 0;
    WalkRebuild(value.call, [&](const Call& call) {
      cost += CostOf(call);
      return cost / bytes <= limit;
    });
    return cost / bytes;
  }

  // D(value).
  int Dependents(const Value& value) {
    int found = 0;
    int walked = 0;
    WalkReaders(value, [&](const Call& call) {
      if (++walked > kLongestWalk) return false;
      found +=
          std::any_of(call.outputs.begin(), call.outputs.end(), [](const Call::Output& output) {
            return output.value != nullptr && output.value->evicted();
          });
      return true;
    });
    return found;
  }

  ScoreIndex index_;
  // Kept between decisions for their memory.
  std::vector<Call*> rebuilt_;
  std::vector<const Value*> read_;
  uint64_t mark_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeEbbPolicy(Bytes min_bytes) {
  return std::make_unique<EbbPolicy>(min_bytes);
}

}  // namespace ebbtide
