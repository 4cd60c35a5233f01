// SPDX-License-Identifier: Apache-2.0

#include "allocator/page_map.h"

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

TEST(PageMapDeathTest, RefusesAddressesBeyondTheTable) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  PageMap map;
  EXPECT_DEATH(map.Set(uintptr_t{1} << 47, 1), "beyond 47 bits");
}

}  // namespace
}  // namespace ebbtide
