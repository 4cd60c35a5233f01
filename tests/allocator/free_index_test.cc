// SPDX-License-Identifier: Apache-2.0

#include "allocator/free_index.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

struct Item {
  FreeLink<Item> link;
};
using Index = FreeIndex<Item, &Item::link>;

TEST(FreeIndexTest, IsEmptyAtFirstAndAfterTheLastRemoval) {
  Index index;
  EXPECT_EQ(index.Find(64), nullptr);
  EXPECT_EQ(index.AlmostLargest(), nullptr);
  EXPECT_EQ(index.LargestKey(), 0u);
  Item item;
  index.Insert(&item, 640);
  EXPECT_EQ(index.AlmostLargest(), &item);
  index.Remove(&item);
  index.Remove(&item);
  EXPECT_EQ(index.Find(64), nullptr);
  EXPECT_EQ(index.AlmostLargest(), nullptr);
}

TEST(FreeIndexTest, AKeyOfZeroStaysOut) {
  Index index;
  Item item;
  index.Insert(&item, 0);
  EXPECT_EQ(index.AlmostLargest(), nullptr);
}

TEST(FreeIndexTest, FindsWhatFitsAlsoAtTheEndsOfItsRange) {
  for (size_t key : {size_t{64}, size_t{2048}, size_t{1} << 30, size_t{1} << 47}) {
    Index index;
    Item item;
    index.Insert(&item, key);
    EXPECT_EQ(index.Find(64), &item);
    EXPECT_EQ(index.Find(key), &item);
    EXPECT_EQ(index.Find(key + 64), nullptr);
    EXPECT_EQ(index.LargestKey(), key);
    index.Remove(&item);
  }
}

// A block that fits must be found however many that do not fit share its bin.
TEST(FreeIndexTest, FindsTheOnlyFitAmongManyNearMisses) {
  Index index;
  std::deque<Item> items(1000);
  const size_t wanted = (size_t{1} << 20) + 64 * 100;
  index.Insert(&items[0], wanted);
  for (size_t i = 1; i < items.size(); ++i) index.Insert(&items[i], wanted - 64);
  EXPECT_EQ(index.Find(wanted), &items[0]);
}

TEST(FreeIndexTest, AgreesWithASortedSet) {
  std::mt19937_64 random(1);
  Index index;
  std::deque<Item> items(300);
  std::multiset<size_t> keys;
  for (int step = 0; step < 100'000; ++step) {
    Item& item = items[random() % items.size()];
    if (item.link.key != 0) {
      keys.erase(keys.find(item.link.key));
      index.Remove(&item);
    } else {
      const size_t key = ((random() % 64 + 64) << (random() % 30)) & ~size_t{63};
      index.Insert(&item, key);
      if (key != 0) keys.insert(key);
    }
    const size_t wanted = (random() % 64 + 64) << (random() % 30);
    const auto best = keys.lower_bound(wanted);
    const Item* found = index.Find(wanted);
    ASSERT_EQ(found != nullptr, best != keys.end());
    if (found != nullptr) {
      ASSERT_GE(found->link.key, wanted);
      // The next bin may begin with a gap of one bin's width: 1/32 on each side.
      ASSERT_LE(static_cast<double>(found->link.key), static_cast<double>(*best) * 1.07 + 64);
    }
    ASSERT_EQ(index.LargestKey(), keys.empty() ? 0 : *keys.rbegin());
  }
}

}  // namespace
}  // namespace ebbtide
