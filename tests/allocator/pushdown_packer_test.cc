// SPDX-License-Identifier: Apache-2.0
#include "allocator/pushdown_packer.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

void ExpectValid(const std::vector<Lifetime>& lifetimes, const Packing& packing,
                 int64_t alignment) {
  ASSERT_EQ(packing.offsets.size(), lifetimes.size());
  int64_t height = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& a = lifetimes[i];
    const int64_t low = packing.offsets[i];
    ASSERT_GE(low, 0);
    ASSERT_EQ(low % alignment, 0);
    height = std::max(height, low + a.bytes);
    for (size_t j = 0; j < i; ++j) {
      const Lifetime& b = lifetimes[j];
      if (a.begin >= a.end || b.begin >= b.end || a.begin >= b.end || b.begin >= a.end) continue;
      const int64_t other = packing.offsets[j];
      ASSERT_TRUE(low + a.bytes <= other || other + b.bytes <= low) << i << " and " << j;
    }
  }
  EXPECT_EQ(packing.height, height);
}

TEST(PushdownPackerTest, NothingToPack) { EXPECT_EQ(PackByPushdown({}).height, 0); }

TEST(PushdownPackerTest, RandomProblemsAreValid) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(seed);
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < 80; ++i) {
      const int64_t begin = draw() % 60;
      const int64_t length = draw() % 20, bytes = draw() % 100;
      lifetimes.push_back({begin, begin + length, bytes});
    }
    const int64_t alignment = 1 + seed % 7;
    const Packing packing = PackByPushdown(lifetimes, alignment);
    ASSERT_NO_FATAL_FAILURE(ExpectValid(lifetimes, packing, alignment)) << "seed " << seed;
    EXPECT_GE(packing.height, MaxLiveBytes(lifetimes, alignment) - alignment + 1);
  }
}

// A stack, as in a forward and a backward pass, loses nothing.
TEST(PushdownPackerTest, NestedLifetimesAreOptimal) {
  std::vector<Lifetime> lifetimes;
  for (int64_t i = 0; i < 50; ++i) lifetimes.push_back({i, 100 - i, 1 + i * 7 % 13});
  EXPECT_EQ(PackByPushdown(lifetimes).height, MaxLiveBytes(lifetimes));
}

// The gap that two small ones leave grows to take a large one, and what lies above is lifted as a
// whole: first fit by address would put the large one on top of the last.
TEST(PushdownPackerTest, AGapGrowsBeforeTheStackDoes) {
  const std::vector<Lifetime> lifetimes = {{0, 2, 4}, {0, 9, 1}, {2, 9, 6}};
  const Packing packing = PackByPushdown(lifetimes);
  EXPECT_EQ(packing.height, 7);
  EXPECT_EQ(packing.height, MaxLiveBytes(lifetimes));
}

}  // namespace
}  // namespace ebbtide
