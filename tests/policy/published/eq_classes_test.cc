// SPDX-License-Identifier: Apache-2.0

#include "policy/published/eq_classes.h"

#include "gtest/gtest.h"
#include "tests/policy/published/view_fixture.h"

namespace ebbtide::published {
namespace {

// A chain 0 .. 4 with costs 1, 10, 100, 1000, 10000: every sum tells what is in it.
class EqClassesTest : public testing::Test {
 protected:
  EqClassesTest() : fixture_({1, 10, 100, 1000, 10000}), classes_(5) {
    fixture_.Chain({0, 1, 2, 3, 4});
  }
  int64_t Cost(StorageId id) { return classes_.NeighbourCost(fixture_.view(), id); }
  void Evict(StorageId id) { fixture_.Evict(id, &classes_); }
  void Return(StorageId id) { fixture_.Return(id, &classes_); }

  ViewFixture fixture_;
  EqClasses classes_;
};

TEST_F(EqClassesTest, NeighboursAreCountedInBothDirections) {
  EXPECT_EQ(Cost(2), 0);
  Evict(1);
  EXPECT_EQ(Cost(0), 10);
  EXPECT_EQ(Cost(2), 10);
  EXPECT_EQ(Cost(3), 0) << "what is further away counts only through evicted ones";
  Evict(3);
  EXPECT_EQ(Cost(2), 1010) << "two classes";
}

TEST_F(EqClassesTest, AnEvictionJoinsTheClassesBesideIt) {
  Evict(1);
  Evict(3);
  Evict(2);
  EXPECT_EQ(Cost(0), 1110);
  EXPECT_EQ(Cost(4), 1110);
}

TEST_F(EqClassesTest, AClassThatIsMetTwiceCountsOnce) {
  fixture_.Connect(0, 2);
  Evict(1);
  Evict(2);
  EXPECT_EQ(Cost(0), 110) << "1 and 2 are both neighbours of 0, in one class";
}

TEST_F(EqClassesTest, AReturnSubtractsItsCostButSplitsNothing) {
  Evict(1);
  Evict(2);
  Evict(3);
  Return(2);
  EXPECT_EQ(Cost(0), 1010) << "1 alone would be 10: 3 is still joined to it";
  Evict(2);
  EXPECT_EQ(Cost(0), 1110);
}

TEST_F(EqClassesTest, AReturnSubtractsTheCostOfNowAndMayGoBelowZero) {
  Evict(1);
  Evict(2);
  fixture_.storage(2).cost = 500;  // an alias was linked meanwhile
  Return(2);
  EXPECT_EQ(Cost(0), 110 - 500);
}

TEST_F(EqClassesTest, AnOperatorThatHasNotRunIsAClassWorthNothing) {
  // As it is after Link: the result exists, without memory, and nothing was evicted.
  fixture_.storage(2).in_memory = false;
  EXPECT_EQ(Cost(1), 0);
  EXPECT_EQ(Cost(3), 0);
  Evict(1);
  EXPECT_EQ(Cost(0), 10) << "the pending result has joined, and adds nothing";
  Return(2);
  EXPECT_EQ(Cost(0), 10 - 100) << "its first run subtracts what was never added";
}

}  // namespace
}  // namespace ebbtide::published
