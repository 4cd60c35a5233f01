// SPDX-License-Identifier: Apache-2.0

#include "allocator/piece_map.h"

#include <algorithm>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(PieceMapTest, KnowsWhatIsThereAndWhereAPieceIsCut) {
  PieceMap map;
  map.Add({.begin = 0, .end = 6, .piece = 2});
  map.Add({.begin = 8, .end = 12, .piece = 4});
  EXPECT_TRUE(map.HasAll(0, 6));
  EXPECT_TRUE(map.HasAll(9, 11));
  EXPECT_FALSE(map.HasAll(5, 9));
  EXPECT_FALSE(map.HasAny(6, 8));
  EXPECT_TRUE(map.HasAny(7, 9));
  EXPECT_FALSE(map.HasAny(12, 100));
  for (uintptr_t border : {0, 2, 4, 6, 7, 8, 12, 13}) EXPECT_FALSE(map.Cuts(border)) << border;
  for (uintptr_t border : {1, 3, 5, 9, 10, 11}) EXPECT_TRUE(map.Cuts(border)) << border;
}

TEST(PieceMapTest, TakesPiecesOutOfTheMiddleOfARun) {
  PieceMap map;
  map.Add({.begin = 0, .end = 100, .piece = 10});
  EXPECT_EQ(map.runs(), 1u);
  const auto taken = map.Take(30, 50);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].begin, 30u);
  EXPECT_EQ(taken[0].end, 50u);
  EXPECT_EQ(taken[0].pieces(), 2);
  EXPECT_TRUE(map.HasAll(0, 30));
  EXPECT_FALSE(map.HasAny(30, 50));
  EXPECT_TRUE(map.HasAll(50, 100));
  EXPECT_EQ(map.Take(0, 200).size(), 2u);
  EXPECT_EQ(map.runs(), 0u);
}

TEST(PieceMapDeathTest, StopsWhoCutsAPieceOrAddsTwice) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  PieceMap map;
  map.Add({.begin = 0, .end = 8, .piece = 4});
  EXPECT_DEATH(map.Take(0, 6), "a piece lies across 6");
  EXPECT_DEATH(map.Add({.begin = 7, .end = 9, .piece = 1}), "there already");
  EXPECT_DEATH(map.Add({.begin = 10, .end = 13, .piece = 2}), "in pieces of 2");
}

// The same questions, answered by a map with an entry for every byte.
TEST(PieceMapTest, AgreesWithOneEntryAByte) {
  constexpr uintptr_t kSize = 96;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    PieceMap map;
    std::set<uintptr_t> bytes;
    std::set<uintptr_t> insides;  // borders that cut a piece
    const auto count = [](const std::set<uintptr_t>& set, uintptr_t begin, uintptr_t end) {
      return static_cast<uintptr_t>(std::distance(set.lower_bound(begin), set.lower_bound(end)));
    };
    for (int step = 0; step < 400; ++step) {
      const uintptr_t begin = random() % kSize;
      const size_t piece = 1 + random() % 4;
      const uintptr_t end = begin + piece * (1 + random() % 5);
      EXPECT_EQ(map.HasAny(begin, end), count(bytes, begin, end) > 0);
      EXPECT_EQ(map.HasAll(begin, end), count(bytes, begin, end) == end - begin);
      ASSERT_EQ(map.Cuts(begin), insides.count(begin) == 1) << begin;
      if (!map.HasAny(begin, end)) {
        map.Add({begin, end, piece});
        for (uintptr_t at = begin; at < end; ++at) {
          bytes.insert(at);
          if ((at - begin) % piece != 0) insides.insert(at);
        }
      } else if (!map.Cuts(begin) && !map.Cuts(end)) {
        uintptr_t taken = 0;
        for (const PieceMap::Run& run : map.Take(begin, end)) taken += run.end - run.begin;
        EXPECT_EQ(taken, count(bytes, begin, end));
        bytes.erase(bytes.lower_bound(begin), bytes.lower_bound(end));
        insides.erase(insides.lower_bound(begin), insides.lower_bound(end));
      }
    }
  }
}

}  // namespace
}  // namespace ebbtide
