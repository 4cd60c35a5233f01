// SPDX-License-Identifier: Apache-2.0

#include "allocator/granule_map.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(GranuleMapTest, StartsAllOneOrAllTheOther) {
  EXPECT_EQ(GranuleMap(200, true).Count(0, 200), 200u);
  EXPECT_EQ(GranuleMap(200, false).Count(0, 200), 0u);
  EXPECT_EQ(GranuleMap(200, true).FindNext(0, 200, false), 200u);
  EXPECT_EQ(GranuleMap(200, false).FindNext(3, 3, true), 3u);
}

TEST(GranuleMapTest, AgreesWithAPlainVector) {
  std::mt19937 random(1);
  constexpr size_t kSize = 333;
  GranuleMap map(kSize, false);
  std::vector<bool> model(kSize, false);
  for (int step = 0; step < 20'000; ++step) {
    const size_t begin = random() % (kSize + 1);
    const size_t end = begin + random() % (kSize + 1 - begin);
    const bool value = random() % 2 == 0;
    map.Set(begin, end, value);
    for (size_t i = begin; i < end; ++i) model[i] = value;

    const size_t from = random() % (kSize + 1);
    const size_t to = from + random() % (kSize + 1 - from);
    const bool wanted = random() % 2 == 0;
    size_t count = 0, next = to;
    for (size_t i = to; i > from; --i) {
      if (model[i - 1]) ++count;
      if (model[i - 1] == wanted) next = i - 1;
    }
    ASSERT_EQ(map.Count(from, to), count);
    ASSERT_EQ(map.FindNext(from, to, wanted), next);
    size_t last = kSize;
    for (size_t i = from; i < to; ++i) last = model[i] ? i : last;
    if (last < kSize) {
      ASSERT_EQ(map.FindLast(from, to - 1), last);
    }
    if (from < to) {
      ASSERT_EQ(map.Get(from), model[from]);
    }
  }
}

}  // namespace
}  // namespace ebbtide
