// SPDX-License-Identifier: Apache-2.0

#include "policy/ebb_policy.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/policy_fixture.h"
#include "tests/policy/random_walk.h"

namespace ebbtide {
namespace {

// The definition, by sets.
double Score(const Value& value, int64_t now) {
  std::set<const Call*> rerun;
  std::vector<const Call*> work = {value.call};
  double cost = 0;
  while (!work.empty()) {
    const Call* call = work.back();
    work.pop_back();
    if (!rerun.insert(call).second) continue;
    cost += static_cast<double>(call->cost.count()) + 1;
    for (const Use& use : call->inputs) {
      if (use.value->memory == nullptr && use.value->call != nullptr) {
        work.push_back(use.value->call);
      }
    }
  }
  std::set<const Call*> dependents;
  std::set<const Value*> seen;
  std::vector<const Value*> read = {&value};
  while (!read.empty()) {
    const Value* next = read.back();
    read.pop_back();
    if (!seen.insert(next).second) continue;
    for (const Use* use = next->uses; use != nullptr; use = use->next) {
      for (const Call::Output& output : use->call->outputs) {
        if (output.value == nullptr || output.value->memory != nullptr) continue;
        read.push_back(output.value);
        if (output.value->storage != nullptr) dependents.insert(use->call);
      }
    }
  }
  const auto stale = static_cast<double>(std::max<int64_t>(now - value.last_access.count(), 1));
  return cost * (1 + static_cast<double>(dependents.size())) /
         (static_cast<double>(value.bytes.count()) * stale);
}

TEST(EbbPolicyTest, CountsWhatARebuildWouldRun) {
  PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
  Storage* source = fixture.Source(1);
  Storage* before = fixture.Made({source}, 100, 50, 10);
  Storage* after = fixture.Made({before}, 100, 50, 10);
  Storage* alone = fixture.Made({source}, 100, 90, 10);
  fixture.Evict(before->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), alone->value) << "91 < 51 + 51";
  fixture.Return(before->value);
  fixture.Evict(alone->value);
  fixture.Drop(before);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), after->value);
}

// Each state of a recurrent network is cheap as long as its predecessor is there: chosen by that
// alone they would leave one after the other, and come back by a run through the whole chain.
TEST(EbbPolicyTest, AValueThatEvictedOnesWaitForIsDear) {
  PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
  std::vector<Storage*> states = {fixture.Source(100)};
  for (int i = 0; i < 8; ++i) states.push_back(fixture.Made({states.back()}, 100, 10, 10));
  Storage* other = fixture.Made({states[0]}, 100, 25, 10);
  fixture.Evict(states[4]->value);
  fixture.Evict(states[5]->value);
  fixture.Evict(states[6]->value);
  fixture.Evict(states[2]->value);
  fixture.Evict(states[1]->value);
  // states[3] has three dependents, states[7] and [8] three ancestors and none.
  EXPECT_NE(fixture.policy().ChooseVictim(Nanos(20)), states[3]->value);
  fixture.Evict(states[8]->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), other->value) << "26 < 11 x 4 and 33 x 4";
}

// A gradient that was consumed in making one that is still there is not waited for.
TEST(EbbPolicyTest, WhatTheProgramHasConsumedDoesNotCount) {
  PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
  Storage* source = fixture.Source(100);
  Storage* activation = fixture.Made({source}, 100, 10, 10);
  Storage* consumed = fixture.Made({activation}, 100, 10, 10);
  fixture.Made({consumed}, 100, 500, 10);
  Storage* other = fixture.Made({source}, 100, 12, 10);
  fixture.Drop(consumed);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), activation->value) << "11 < 13";
  fixture.Evict(activation->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), other->value);
}

TEST(EbbPolicyTest, WhatWasDroppedIsWaitedForNoLonger) {
  PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
  Storage* source = fixture.Source(100);
  Storage* read = fixture.Made({source}, 100, 10, 10);
  Storage* evicted = fixture.Made({read}, 100, 10, 10);
  Storage* other = fixture.Made({source}, 100, 15, 10);
  fixture.Evict(evicted->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), other->value) << "16 < 11 x 2";
  fixture.Drop(evicted);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(20)), read->value) << "11 < 16";
}

// Layers alike make scores that differ by rounding at most, in one order of operations and not in
// another. A decision about them once did not end.
TEST(EbbPolicyTest, LayersThatAreAlikeAreDecided) {
  for (int64_t stale = 1; stale < 60; ++stale) {
    for (int64_t bytes = 1; bytes < 60; ++bytes) {
      PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
      Storage* source = fixture.Source(1);
      Storage* first = fixture.Made({source}, bytes, 9 * stale, 0);
      fixture.Made({source}, bytes, 9 * stale, 0);
      fixture.Made({source}, 3 * bytes, 27 * stale + 2, 0);
      EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(stale)), first->value);
    }
  }
}

// Every victim of a long walk has the least score by the definition.
TEST(EbbPolicyTest, IsTheDefinitionOnARandomWalk) {
  PolicyFixture fixture(MakeEbbPolicy(Bytes(1)));
  const auto on_victim = [&](Value* victim, int64_t now) {
    ExpectLeastScore(&fixture, *victim, [now](const Value& value) { return Score(value, now); });
  };
  EXPECT_GT(WalkAtRandom(&fixture, 5, on_victim, [](Value*) {}), 300);
}

}  // namespace
}  // namespace ebbtide
