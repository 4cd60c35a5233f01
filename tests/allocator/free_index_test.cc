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
  EXPECT_EQ(index.Largest(), nullptr);
  EXPECT_EQ(index.LargestKey(), 0u);
  Item item;
  index.Insert(&item, 640);
  EXPECT_EQ(index.Largest(), &item);
  index.Remove(&item);
  index.Remove(&item);
  EXPECT_EQ(index.Find(64), nullptr);
  EXPECT_EQ(index.Largest(), nullptr);
}

TEST(FreeIndexTest, AKeyOfZeroStaysOut) {
  Index index;
  Item item;
  index.Insert(&item, 0);
  EXPECT_EQ(index.Largest(), nullptr);
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

// What was used last is likely still in the processor's caches.
TEST(FreeIndexTest, OfEqualKeysTheLatestIsFound) {
  Index index;
  std::deque<Item> items(3);
  for (Item& item : items) index.Insert(&item, 640);
  EXPECT_EQ(index.Find(640), &items[2]);
  EXPECT_EQ(index.Largest(), &items[2]);
  index.Remove(&items[2]);
  EXPECT_EQ(index.Find(640), &items[1]);
  index.Remove(&items[0]);  // the one that stands in the tree
  EXPECT_EQ(index.Find(640), &items[1]);
  index.Remove(&items[1]);
  EXPECT_EQ(index.Find(640), nullptr);
}

// Each thread of a pathological program may free blocks of sizes that differ a little: in one bin,
// in ascending order, where a list or a tree without balance is walked from end to end.
TEST(FreeIndexTest, ManyNearMissesDoNotSlowItDown) {
  Index index;
  std::deque<Item> items(1 << 18);
  const size_t base = size_t{1} << 30;  // its bin spans 32 MiB
  for (size_t i = 0; i < items.size(); ++i) index.Insert(&items[i], base + 64 * i);
  // Quadratic, this would be 2^36 steps.
  for (size_t i = 0; i < items.size(); ++i) ASSERT_EQ(index.Find(base + 64 * i), &items[i]);
  for (Item& item : items) index.Remove(&item);
  EXPECT_EQ(index.Largest(), nullptr);
}

// Compares with a multiset; `dense`: all keys fall into one bin.
void CompareWithASortedSet(bool dense) {
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
      const size_t key = dense ? (size_t{1} << 20) + 64 * (random() % 512)
                               : ((random() % 64 + 64) << (random() % 30)) & ~size_t{63};
      index.Insert(&item, key);
      if (key != 0) keys.insert(key);
    }
    const size_t wanted =
        dense ? (size_t{1} << 20) + 64 * (random() % 520) : (random() % 64 + 64) << (random() % 30);
    const auto best = keys.lower_bound(wanted);
    const Item* found = index.Find(wanted);
    ASSERT_EQ(found != nullptr, best != keys.end());
    if (found != nullptr) {
      ASSERT_EQ(found->link.key, *best);
    }
    ASSERT_EQ(index.LargestKey(), keys.empty() ? 0 : *keys.rbegin());
  }
}

TEST(FreeIndexTest, AgreesWithASortedSet) { CompareWithASortedSet(/*dense=*/false); }

TEST(FreeIndexTest, AgreesWithASortedSetInsideOneBin) { CompareWithASortedSet(/*dense=*/true); }

}  // namespace
}  // namespace ebbtide
