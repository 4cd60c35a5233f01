// SPDX-License-Identifier: Apache-2.0

#include "policy/published/heuristics.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/policy/published/view_fixture.h"

namespace ebbtide::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A chain 0 .. 4 with costs 1, 10, 100, 1000, 10000, in which 1 and 3 are evicted. Storage 2 has
// 4 bytes and was read 5 ns ago, at 45.
class HeuristicsTest : public testing::Test {
 protected:
  HeuristicsTest() : fixture_({1, 10, 100, 1000, 10000}) {
    fixture_.Chain({0, 1, 2, 3, 4});
    fixture_.storage(2).bytes = 4;
    fixture_.storage(2).last_access = 45;
    fixture_.view().clock = 50;
  }

  double Value(const char* name) {
    const auto heuristic = MakeHeuristic(name, 5);
    EXPECT_TRUE(heuristic.ok()) << heuristic.status();
    for (StorageId id = 0; id < 5; ++id) fixture_.Return(id, heuristic->get());
    for (const StorageId id : {1, 3}) fixture_.Evict(id, heuristic->get());
    return (*heuristic)->Value(fixture_.view(), 2).Rounded();
  }

  ViewFixture fixture_;
};

TEST_F(HeuristicsTest, ValuesAreThoseOfTheFormulas) {
  EXPECT_EQ(Value("DTR"), (100.0 + 1000 + 10) / (4 * 5));
  EXPECT_EQ(Value("DTRLocal"), 100.0 / (4 * 5));
  EXPECT_EQ(Value("MSPS"), (100.0 + 10) / 4) << "ancestors only, and no staleness";
  EXPECT_EQ(Value("LRU"), 45.0);
  EXPECT_EQ(Value("LargestStorage"), 1.0 / 4);
}

TEST(EqClassHeuristicTest, AddsTheClassesBesideTheStorage) {
  ViewFixture fixture({1, 10, 100, 1000});
  fixture.Chain({0, 1, 2, 3});
  fixture.view().clock = 5;
  const auto heuristic = MakeHeuristic("DTREqClass", 4);
  ASSERT_TRUE(heuristic.ok()) << heuristic.status();
  for (const StorageId id : {1, 3}) fixture.Evict(id, heuristic->get());
  EXPECT_EQ((*heuristic)->Value(fixture.view(), 2).Rounded(), (100.0 + 1000 + 10) / 5);
}

TEST_F(HeuristicsTest, WhatHasNoSizeOrWasJustReadIsInfinitelyDear) {
  fixture_.storage(2).last_access = 50;
  for (const char* name : {"DTR", "DTREqClass", "DTRLocal"}) {
    EXPECT_EQ(Value(name), std::numeric_limits<double>::infinity()) << name;
  }
  EXPECT_EQ(Value("MSPS"), 110.0 / 4);
  fixture_.storage(2).last_access = 45;
  fixture_.storage(2).bytes = 0;
  for (const char* name : {"DTR", "DTREqClass", "DTRLocal", "MSPS", "LargestStorage"}) {
    EXPECT_EQ(Value(name), std::numeric_limits<double>::infinity()) << name;
  }
  EXPECT_EQ(Value("LRU"), 45.0) << "which has no size in it";
}

TEST(HeuristicNamesTest, AreThePublishedOnesAndOthersAreAnError) {
  EXPECT_THAT(HeuristicNames(),
              ElementsAre("DTR", "DTREqClass", "DTRLocal", "MSPS", "LRU", "LargestStorage"));
  const auto other = MakeHeuristic("dtr", 1);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("DTREqClass"));
}

}  // namespace
}  // namespace ebbtide::published
