// SPDX-License-Identifier: Apache-2.0

#include "policy/ordered_policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/policy_fixture.h"

namespace ebbtide {
namespace {

TEST(LruPolicyTest, NamesWhatWasReadLongestAgo) {
  PolicyFixture fixture(MakeLruPolicy(Bytes(1)));
  Storage* source = fixture.Source(1);
  Storage* a = fixture.Made({source}, 100, 1, 1);
  Storage* b = fixture.Made({source}, 999, 1, 2);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), a->value);
  fixture.graph().Read(a->value, Nanos(3));
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), b->value);
  fixture.Evict(b->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), a->value);
  fixture.graph().Read(b->value, Nanos(4));
  fixture.Return(b->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), a->value);
}

TEST(SizePolicyTest, NamesTheLargest) {
  PolicyFixture fixture(MakeSizePolicy(Bytes(1)));
  Storage* source = fixture.Source(5000);
  Storage* small = fixture.Made({source}, 100, 1, 1);
  Storage* large = fixture.Made({source}, 300, 1, 2);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), large->value);
  fixture.Evict(large->value);
  EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), small->value);
}

TEST(OrderedPolicyTest, EqualKeysGoByAge) {
  for (auto make : {&MakeLruPolicy, &MakeSizePolicy}) {
    PolicyFixture fixture(make(Bytes(1)));
    Storage* source = fixture.Source(1);
    Storage* first = fixture.Made({source}, 100, 1, 1);
    fixture.Made({source}, 100, 1, 1);
    EXPECT_EQ(fixture.policy().ChooseVictim(Nanos(10)), first->value);
  }
}

// Against a scan of all candidates.
TEST(OrderedPolicyTest, AgreesWithAScanOnARandomWalk) {
  for (const bool lru : {true, false}) {
    PolicyFixture fixture(lru ? MakeLruPolicy(Bytes(1)) : MakeSizePolicy(Bytes(1)));
    std::mt19937 random(11);
    std::vector<Storage*> all = {fixture.Source(1000)};
    const auto key = [lru](const Value* value) {
      return lru ? value->last_access.count() : -value->bytes.count();
    };
    for (int64_t now = 1; now < 3000; ++now) {
      Storage* any = all[random() % all.size()];
      if (random() % 2 == 0) {
        all.push_back(fixture.Made({any}, 1 + random() % 50, 1, now / 3));
      } else if (random() % 2 == 0) {
        fixture.graph().Read(any->value, Nanos(now / 3));
        if (any->value->memory == nullptr) fixture.Return(any->value);
      } else if (Value* victim = fixture.policy().ChooseVictim(Nanos(now)); victim != nullptr) {
        for (const Value* value : fixture.policy().candidates()) {
          ASSERT_LE(std::pair(key(victim), victim->id), std::pair(key(value), value->id));
        }
        fixture.Evict(victim);
      }
    }
  }
}

}  // namespace
}  // namespace ebbtide
