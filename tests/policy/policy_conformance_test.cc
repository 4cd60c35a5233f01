// SPDX-License-Identifier: Apache-2.0
//
// What every policy of the registry must do, whatever its order.

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/options.h"
#include "gtest/gtest.h"
#include "policy/registry.h"
#include "tests/policy/policy_fixture.h"

namespace ebbtide {
namespace {

constexpr int64_t kMinBytes = 100;

std::unique_ptr<EvictionPolicy> Make(absl::string_view name) {
  auto policy = MakePolicy(name, Bytes(kMinBytes));
  EXPECT_TRUE(policy.ok());
  return *std::move(policy);
}

class PolicyConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  PolicyFixture fixture_{Make(GetParam())};
  EvictionPolicy& policy_ = fixture_.policy();
  Storage* const source_ = fixture_.Source(1000);
};

TEST_P(PolicyConformanceTest, IsCalledByItsName) { EXPECT_EQ(policy_.name(), GetParam()); }

TEST_P(PolicyConformanceTest, NothingToNameAtFirst) {
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr) << "a source is no candidate";
  EXPECT_TRUE(policy_.candidates().empty());
  EXPECT_EQ(policy_.candidate_bytes(), Bytes(0));
}

TEST_P(PolicyConformanceTest, NamesWhatACallMade) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), made->value);
  EXPECT_EQ(policy_.candidate_bytes(), Bytes(500));
}

TEST_P(PolicyConformanceTest, LeavesSmallValuesAlone) {
  Storage* small = fixture_.Made({source_}, kMinBytes - 1, 10, 1);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  Storage* limit = fixture_.Made({small}, kMinBytes, 10, 1);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), limit->value);
}

TEST_P(PolicyConformanceTest, PassesOverPinnedValues) {
  Storage* a = fixture_.Made({source_}, 500, 10, 1);
  Storage* b = fixture_.Made({source_}, 600, 20, 2);
  for (auto [pinned, other] : {std::pair(a, b), std::pair(b, a)}) {
    fixture_.graph().Pin(pinned->value);
    EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), other->value);
    EXPECT_EQ(policy_.candidates().size(), 2u) << "it stays a candidate";
    fixture_.graph().Pin(other->value);
    EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
    fixture_.graph().Unpin(other->value);
    fixture_.graph().Unpin(pinned->value);
  }
}

TEST_P(PolicyConformanceTest, PassesOverWhatHasNoMemory) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  fixture_.Evict(made->value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  EXPECT_EQ(policy_.candidate_bytes(), Bytes(0));
  fixture_.Return(made->value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(20)), made->value);
}

TEST_P(PolicyConformanceTest, NamesDetachedValues) {
  Storage* middle = fixture_.Made({source_}, 500, 10, 1);
  Storage* last = fixture_.Made({middle}, 500, 10, 1);
  Value* value = middle->value;
  fixture_.Drop(middle);
  fixture_.Evict(last->value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  fixture_.Return(value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), value);
}

TEST_P(PolicyConformanceTest, ForgetsWhatIsDropped) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  Storage* next = fixture_.Made({made}, 500, 10, 1);
  fixture_.Drop(next);
  fixture_.Drop(made);
  EXPECT_TRUE(policy_.candidates().empty());
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
}

TEST_P(PolicyConformanceTest, ForgetsWhatSettled) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  Value* old = fixture_.graph().Displace(source_, nullptr);
  fixture_.graph().Lose(old);
  fixture_.graph().Unhold(old);
  EXPECT_TRUE(made->value->is_source());
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  EXPECT_EQ(policy_.candidate_bytes(), Bytes(0));
}

TEST_P(PolicyConformanceTest, AnOverwrittenValueIsNoCandidate) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  Value* old = fixture_.graph().Displace(made, nullptr);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  fixture_.graph().Unhold(old);
}

TEST_P(PolicyConformanceTest, ExcludedAndEscapedValuesAreNoCandidates) {
  Storage* made = fixture_.Made({source_}, 500, 10, 1);
  policy_.Exclude(made->value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
  policy_.Exclude(made->value);
  EXPECT_EQ(policy_.candidate_bytes(), Bytes(0));
  made->escaped = true;
  fixture_.Evict(made->value);
  fixture_.Return(made->value);
  EXPECT_EQ(policy_.ChooseVictim(Nanos(10)), nullptr);
}

// A long walk over everything that a graph does; returns the ids of all victims.
std::vector<uint64_t> Walk(const std::string& name, uint32_t seed) {
  PolicyFixture fixture(Make(name));
  EvictionPolicy& policy = fixture.policy();
  std::mt19937 random(seed);
  std::vector<Storage*> live = {fixture.Source(1000)};
  std::vector<uint64_t> victims;
  for (int64_t now = 1; now < 3000; ++now) {
    Storage* any = live[random() % live.size()];
    const unsigned what = random() % 8;
    if (what < 4) {
      Storage* other = live[random() % live.size()];
      std::vector<Storage*> inputs = {any};
      if (other != any) inputs.push_back(other);
      live.push_back(fixture.Made(inputs, 50 + random() % 1000, random() % 100, now));
    } else if (what < 5 && live.size() > 1) {
      std::swap(live[random() % live.size()], live.back());
      fixture.Drop(live.back());
      live.pop_back();
    } else if (what < 6) {
      if (any->value->memory == nullptr) fixture.Return(any->value);
      fixture.graph().Read(any->value, Nanos(now));
    } else {
      fixture.graph().Pin(any->value);
      Value* victim = policy.ChooseVictim(Nanos(now));
      EXPECT_NE(victim, any->value);
      if (victim != nullptr) {
        const auto candidates = policy.candidates();
        EXPECT_NE(std::find(candidates.begin(), candidates.end(), victim), candidates.end());
        EXPECT_EQ(victim, policy.ChooseVictim(Nanos(now))) << "asking changes nothing";
        victims.push_back(victim->id);
        fixture.Evict(victim);
      }
      fixture.graph().Unpin(any->value);
    }
    Bytes sum(0);
    for (const Value* value : policy.candidates()) {
      sum += value->bytes;
      EXPECT_TRUE(value->memory != nullptr && !value->is_source() &&
                  value->bytes >= Bytes(kMinBytes));
    }
    EXPECT_EQ(policy.candidate_bytes(), sum);
  }
  for (Storage* storage : live) fixture.Drop(storage);
  EXPECT_TRUE(policy.candidates().empty());
  return victims;
}

TEST_P(PolicyConformanceTest, ARandomWalkKeepsItsSumsAndIsTheSameEveryTime) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const std::vector<uint64_t> victims = Walk(GetParam(), seed);
    EXPECT_GT(victims.size(), 100u);
    // Between the two runs the addresses differ, so that an order by address or hash shows.
    const std::vector<std::unique_ptr<char[]>> shift = [] {
      std::vector<std::unique_ptr<char[]>> blocks;
      for (size_t i = 1; i < 200; ++i) blocks.push_back(std::make_unique<char[]>(i * 3));
      return blocks;
    }();
    EXPECT_EQ(victims, Walk(GetParam(), seed));
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (absl::string_view name : PolicyNames()) names.emplace_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyConformanceTest, testing::ValuesIn(Names()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(RegistryTest, SaysWhichPoliciesThereAre) {
  const auto policy = MakePolicy("best", Bytes(1));
  ASSERT_FALSE(policy.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(policy.status()));
  EXPECT_NE(policy.status().message().find("'best'"), absl::string_view::npos);
  for (absl::string_view name : PolicyNames()) {
    EXPECT_NE(policy.status().message().find(name), absl::string_view::npos);
  }
}

// The options table knows the names too, one layer below: they must not drift apart.
TEST(RegistryTest, TheOptionAllowsWhatThereIs) {
  const auto load = [](const std::string& policy) {
    return LoadOptions([policy](const char* name) {
      return policy.empty() || std::string(name) != "EBBTIDE_POLICY" ? nullptr : policy.c_str();
    });
  };
  EXPECT_EQ(PolicyNames().front(), load("")->policy) << "the default";
  for (absl::string_view name : PolicyNames()) {
    const auto options = load(std::string(name));
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->policy, name);
  }
  const std::string text(load("best").status().message());
  const auto separators = std::count(text.begin(), text.end(), ',') + 1;
  EXPECT_EQ(separators, static_cast<int64_t>(PolicyNames().size()) - 1) << text;
}

}  // namespace
}  // namespace ebbtide
