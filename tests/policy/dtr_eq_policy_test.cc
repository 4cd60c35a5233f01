// SPDX-License-Identifier: Apache-2.0

#include "policy/dtr_eq_policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/policy_fixture.h"
#include "tests/policy/random_walk.h"

namespace ebbtide {
namespace {

// The definition, without a union-find: components as a label for each evicted value. Labels are
// merged and never split; a component's cost is the sum over its members of now.
class Reference {
 public:
  static std::set<Value*> Neighbours(const Value& value) {
    std::set<Value*> found;
    if (value.call != nullptr) {
      for (const Use& use : value.call->inputs) found.insert(use.value);
    }
    for (const Use* use = value.uses; use != nullptr; use = use->next) {
      for (const Call::Output& output : use->call->outputs) {
        if (output.value != nullptr) found.insert(output.value);
      }
    }
    return found;
  }

  void Evicted(Value* value) {
    const int label = next_label_++;
    labels_[value] = label;
    for (Value* neighbour : Neighbours(*value)) {
      const auto it = labels_.find(neighbour);
      if (it == labels_.end()) continue;
      const int old = Canonical(it->second);
      if (old != label) merged_[old] = label;
    }
  }
  void Returned(Value* value) { labels_.erase(value); }

  double Score(const Value& value, int64_t now) const {
    double cost = Cost(value);
    std::set<int> components;
    for (Value* neighbour : Neighbours(value)) {
      const auto it = labels_.find(neighbour);
      if (it != labels_.end()) components.insert(Canonical(it->second));
    }
    for (const auto& [member, label] : labels_) {
      if (components.contains(Canonical(label))) cost += Cost(*member);
    }
    const auto stale = static_cast<double>(std::max<int64_t>(now - value.last_access.count(), 1));
    return cost / (static_cast<double>(value.bytes.count()) * stale);
  }

 private:
  static double Cost(const Value& value) {
    return value.call == nullptr ? 0.0 : static_cast<double>(value.call->cost.count()) + 1;
  }
  int Canonical(int label) const {
    for (auto it = merged_.find(label); it != merged_.end(); it = merged_.find(label)) {
      label = it->second;
    }
    return label;
  }

  std::map<Value*, int> labels_;
  std::map<int, int> merged_;
  int next_label_ = 0;
};

TEST(DtrEqPolicyTest, PrefersCheapLargeAndStale) {
  PolicyFixture fixture(MakeDtrEqPolicy(Bytes(1)));
  Storage* source = fixture.Source(1);
  Storage* usual = fixture.Made({source}, 100, 99, 10);
  Storage* cheap = fixture.Made({source}, 100, 9, 10);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), cheap->value);
  fixture.Drop(cheap);
  Storage* large = fixture.Made({source}, 1000, 99, 10);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), large->value);
  fixture.Drop(large);
  Storage* stale = fixture.Made({source}, 100, 99, 1);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), stale->value);
  fixture.Drop(stale);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), usual->value);
}

TEST(DtrEqPolicyTest, CountsEvictedNeighboursOnBothSides) {
  PolicyFixture fixture(MakeDtrEqPolicy(Bytes(1)));
  Storage* source = fixture.Source(1);
  Storage* before = fixture.Made({source}, 100, 50, 10);
  Storage* middle = fixture.Made({before}, 100, 50, 10);
  Storage* after = fixture.Made({middle}, 100, 50, 10);
  Storage* alone = fixture.Made({source}, 100, 120, 10);
  fixture.Evict(before->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), after->value) << "51 < 51 + 51 < 121";
  fixture.Evict(after->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), alone->value) << "121 < 51 + 2 x 51";
  fixture.Return(before->value);
  fixture.Evict(before->value);
  fixture.Return(after->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), after->value);
}

TEST(DtrEqPolicyTest, AnEqualScoreGoesToTheOlderValue) {
  PolicyFixture fixture(MakeDtrEqPolicy(Bytes(1)));
  Storage* source = fixture.Source(1);
  Storage* first = fixture.Made({source}, 100, 50, 10);
  fixture.Made({source}, 100, 50, 10);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), first->value);
}

// Every victim of a long walk has the least score by the definition.
TEST(DtrEqPolicyTest, IsTheDefinitionOnARandomWalk) {
  PolicyFixture fixture(MakeDtrEqPolicy(Bytes(1)));
  Reference reference;
  const auto on_victim = [&](Value* victim, int64_t now) {
    ExpectLeastScore(&fixture, *victim,
                     [&](const Value& value) { return reference.Score(value, now); });
    reference.Evicted(victim);
  };
  const auto on_return = [&](Value* value) { reference.Returned(value); };
  EXPECT_GT(WalkAtRandom(&fixture, 3, on_victim, on_return), 300);
}

}  // namespace
}  // namespace ebbtide
