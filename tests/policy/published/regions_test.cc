// SPDX-License-Identifier: Apache-2.0

#include "policy/published/regions.h"

#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/published/view_fixture.h"

namespace ebbtide::published {
namespace {

// A chain 0 .. 4 with costs 1, 10, 100, 1000, 10000: every sum tells what is in it.
class RegionsTest : public testing::Test {
 protected:
  RegionsTest() : fixture_({1, 10, 100, 1000, 10000}), regions_(5) {
    fixture_.Chain({0, 1, 2, 3, 4});
    for (StorageId id = 0; id < 5; ++id) Return(id);
  }
  void Evict(StorageId id) { fixture_.Evict(id, &regions_); }
  void Return(StorageId id) { fixture_.Return(id, &regions_); }

  ViewFixture fixture_;
  Regions regions_;
};

TEST_F(RegionsTest, EachDirectionReachesThroughEvictedOnesOnly) {
  Evict(1);
  Evict(2);
  EXPECT_EQ(regions_.DescendantCost(0), 110);
  EXPECT_EQ(regions_.AncestorCost(0), 0);
  EXPECT_EQ(regions_.AncestorCost(3), 110);
  EXPECT_EQ(regions_.DescendantCost(3), 0);
  EXPECT_EQ(regions_.AncestorCost(4), 0) << "3 lies between";
  Evict(3);
  EXPECT_EQ(regions_.AncestorCost(4), 1110);
  EXPECT_EQ(regions_.DescendantCost(0), 1110);
}

TEST_F(RegionsTest, AReturnSplitsWhatItConnected) {
  Evict(1);
  Evict(2);
  Evict(3);
  Return(2);
  EXPECT_EQ(regions_.DescendantCost(0), 10);
  EXPECT_EQ(regions_.AncestorCost(2), 10);
  EXPECT_EQ(regions_.DescendantCost(2), 1000);
  EXPECT_EQ(regions_.AncestorCost(4), 1000);
}

TEST_F(RegionsTest, ACachedSumKeepsTheCostOfTheMomentOfEntry) {
  Evict(2);
  fixture_.storage(2).cost = 500;  // an alias was linked meanwhile
  EXPECT_EQ(regions_.AncestorCost(3), 100) << "nothing that rebuilds this region has happened";
  Evict(1);
  EXPECT_EQ(regions_.AncestorCost(3), 110);
  Return(1);
  EXPECT_EQ(regions_.AncestorCost(3), 500) << "the return of 1 rebuilt what looked back on it";
}

TEST_F(RegionsTest, ACircleAbsorbsNothingIntoItself) {
  // Two storages, each made from the other: aliases of several arguments can do that.
  fixture_.Connect(4, 3);
  for (StorageId id = 0; id < 5; ++id) Return(id);
  Evict(3);
  Evict(4);
  Return(4);
  EXPECT_EQ(regions_.AncestorCost(4), 1000);
  EXPECT_EQ(regions_.DescendantCost(4), 1000);
}

// The sum by the definition, without any cache.
int64_t Reach(const MemoryView& view, StorageId from, bool forward) {
  std::set<StorageId> seen = {from};
  std::vector<StorageId> pending = {from};
  int64_t sum = 0;
  while (!pending.empty()) {
    const StorageView& storage = view.storages[pending.back()];
    pending.pop_back();
    for (const StorageId next : forward ? storage.children : storage.parents) {
      if (!seen.insert(next).second || view.storages[next].in_memory) continue;
      sum += view.storages[next].cost;
      pending.push_back(next);
    }
  }
  return sum;
}

TEST(RegionsWalkTest, CachesEqualTheDefinitionOnAGraphThatDoesNotGrow) {
  constexpr int kStorages = 40;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<int64_t> costs;
    for (int i = 0; i < kStorages; ++i) costs.push_back(1 + random() % 1000);
    ViewFixture fixture(costs);
    for (StorageId child = 1; child < kStorages; ++child) {
      std::set<StorageId> parents;
      for (int i = 0; i < 2; ++i) parents.insert(static_cast<StorageId>(random() % child));
      for (const StorageId parent : parents) fixture.Connect(parent, child);
    }
    Regions regions(kStorages);
    for (StorageId id = 0; id < kStorages; ++id) fixture.Return(id, &regions);
    for (int step = 0; step < 300; ++step) {
      const auto id = static_cast<StorageId>(random() % kStorages);
      if (fixture.storage(id).in_memory) {
        fixture.Evict(id, &regions);
      } else {
        fixture.Return(id, &regions);
      }
      for (StorageId each = 0; each < kStorages; ++each) {
        if (!fixture.storage(each).in_memory) continue;
        ASSERT_EQ(regions.DescendantCost(each), Reach(fixture.view(), each, true)) << seed;
        ASSERT_EQ(regions.AncestorCost(each), Reach(fixture.view(), each, false)) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace ebbtide::published
