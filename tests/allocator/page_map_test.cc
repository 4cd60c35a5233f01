// SPDX-License-Identifier: Apache-2.0

#include "allocator/page_map.h"

#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(PageMapTest, KnowsNothingAtFirstOfAnyAddress) {
  PageMap map;
  for (uintptr_t address :
       {uintptr_t{0}, uintptr_t{4096}, uintptr_t{1} << 46, uintptr_t{1} << 47, ~uintptr_t{0}}) {
    EXPECT_EQ(map.Get(address), 0u);
  }
}

TEST(PageMapTest, KeepsAWordAPage) {
  PageMap map;
  const uintptr_t last = (uintptr_t{1} << 47) - 1;
  const uintptr_t page = uintptr_t{0x7f12} << 32;
  map.Set(page + 4095, 17);
  map.Set(last, 18);
  map.Set(0, 19);
  EXPECT_EQ(map.Get(page), 17u);
  EXPECT_EQ(map.Get(page - 1), 0u);
  EXPECT_EQ(map.Get(page + 4096), 0u);
  EXPECT_EQ(map.Get(last - 4095), 18u);
  EXPECT_EQ(map.Get(64), 19u);
  map.Set(page, 0);
  EXPECT_EQ(map.Get(page), 0u);
}

// Against a sorted map, with pages near each other, a GiB apart and far away.
TEST(PageMapTest, FindsTheLastPageAtOrBeforeAnAddress) {
  std::mt19937_64 random(3);
  PageMap map;
  std::map<uintptr_t, uintptr_t> model;
  const uintptr_t base = uintptr_t{0x7f12} << 32;
  const auto pick = [&] {
    const uintptr_t spans[] = {uintptr_t{1} << 18, uintptr_t{1} << 27, uintptr_t{1} << 33};
    return base + random() % spans[random() % 3];
  };
  for (int step = 0; step < 20'000; ++step) {
    const uintptr_t page = pick() >> PageMap::kPageBits;
    const uintptr_t word = random() % 3 == 0 ? 0 : random() | 1;
    map.Set(page << PageMap::kPageBits, word);
    if (word == 0) {
      model.erase(page);
    } else {
      model[page] = word;
    }
    const uintptr_t address = pick();
    auto after = model.upper_bound(address >> PageMap::kPageBits);
    const uintptr_t expected = after == model.begin() ? 0 : std::prev(after)->second;
    ASSERT_EQ(map.FindAtOrBefore(address, uintptr_t{1} << 40), expected);
  }
  EXPECT_EQ(map.FindAtOrBefore(base - 1, uintptr_t{1} << 40), 0u);
  EXPECT_EQ(map.FindAtOrBefore(~uintptr_t{0}, 4096), 0u);
}

// Arenas of several streams share the map.
TEST(PageMapTest, ThreadsSetPagesOfTheirOwnAtOnce) {
  PageMap map;
  std::vector<std::thread> threads;
  for (uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&map, t] {
      for (uintptr_t i = 0; i < 2000; ++i) map.Set((i * 4 + t) << 20, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uintptr_t t = 1; t <= 4; ++t) {
    for (uintptr_t i = 0; i < 2000; ++i) ASSERT_EQ(map.Get((i * 4 + t) << 20), t);
  }
  EXPECT_EQ(map.FindAtOrBefore((uintptr_t{401} << 20) - 1, uintptr_t{1} << 30), 4u);
}

TEST(PageMapDeathTest, RefusesAddressesBeyondTheTable) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  PageMap map;
  EXPECT_DEATH(map.Set(uintptr_t{1} << 47, 1), "beyond 47 bits");
}

}  // namespace
}  // namespace ebbtide
