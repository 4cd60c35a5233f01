// SPDX-License-Identifier: Apache-2.0
#include "base/output_path.h"

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(OutputPathTest, ReplacesPidAndRank) {
  EXPECT_EQ(ExpandOutputPath("stats.json", 12, "3"), "stats.json");
  EXPECT_EQ(ExpandOutputPath("%r/stats.%p.json", 12, "3"), "3/stats.12.json");
  EXPECT_EQ(ExpandOutputPath("%p%p", 12, "3"), "1212");
}

TEST(OutputPathTest, OtherPercentSignsStay) {
  EXPECT_EQ(ExpandOutputPath("50%%p", 12, "3"), "50%p");
  EXPECT_EQ(ExpandOutputPath("%x%", 12, "3"), "%x%");
  EXPECT_EQ(ExpandOutputPath("", 12, "3"), "");
}

TEST(RankTextTest, OnlyPlainNumbersAreRanks) {
  EXPECT_EQ(RankText("7"), "7");
  for (const char* wrong : {"", "a", "../7", "-1", "1 2"}) EXPECT_EQ(RankText(wrong), "0") << wrong;
  EXPECT_EQ(RankText(nullptr), "0");
}

}  // namespace
}  // namespace ebbtide
