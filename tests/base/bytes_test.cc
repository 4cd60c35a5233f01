// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace literals;
using ::testing::HasSubstr;

TEST(BytesTest, ArithmeticAndOrder) {
  Bytes amount = 1_KiB;
  amount += 24_B;
  EXPECT_EQ(amount, Bytes(1048));
  amount -= 1_KiB;
  EXPECT_EQ(amount.count(), 24);
  EXPECT_EQ(3 * 2_MiB, 6_MiB);
  EXPECT_EQ(1_GiB / 4, 256_MiB);
  EXPECT_EQ(1_GiB / 256_MiB, 4);
  EXPECT_EQ(10_B % 4_B, 2_B);
  EXPECT_LT(1_KiB - 2_KiB, Bytes());
  EXPECT_LT(1023_GiB, 1_TiB);
  EXPECT_LT(1_TiB, Bytes::Max());
}

TEST(BytesTest, Rounding) {
  EXPECT_EQ(RoundUp(0_B, 64_B), 0_B);
  EXPECT_EQ(RoundUp(1_B, 64_B), 64_B);
  EXPECT_EQ(RoundUp(64_B, 64_B), 64_B);
  EXPECT_EQ(RoundUp(65_B, 64_B), 128_B);
  EXPECT_EQ(RoundDown(63_B, 64_B), 0_B);
  EXPECT_EQ(RoundDown(129_B, 64_B), 128_B);
}

struct ParseCase {
  const char* text;
  int64_t bytes;
};

class ParseBytesTest : public ::testing::TestWithParam<ParseCase> {};

TEST_P(ParseBytesTest, Reads) {
  absl::StatusOr<Bytes> amount = ParseBytes(GetParam().text);
  ASSERT_TRUE(amount.ok()) << amount.status();
  EXPECT_EQ(amount->count(), GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Units, ParseBytesTest,
    ::testing::Values(ParseCase{"0", 0}, ParseCase{"4096", 4096}, ParseCase{"4096B", 4096},
                      ParseCase{"7 bytes", 7}, ParseCase{"2k", 2048}, ParseCase{"2KiB", 2048},
                      ParseCase{"2kB", 2000}, ParseCase{"512m", 536870912},
                      ParseCase{"512MB", 512000000}, ParseCase{"8GiB", 8589934592},
                      ParseCase{"8Gi", 8589934592}, ParseCase{"8G", 8589934592},
                      ParseCase{"8GB", 8000000000}, ParseCase{"1.5g", 1610612736},
                      ParseCase{" 1.5 gib ", 1610612736}, ParseCase{".5k", 512},
                      ParseCase{"1.k", 1024}, ParseCase{"0.001k", 1},
                      ParseCase{"1t", 1099511627776},
                      ParseCase{"0.30000000000000000000000000001k", 307},
                      ParseCase{"9223372036854775807", 9223372036854775807}));

class ParseBytesErrorTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ParseBytesErrorTest, SaysValueAndWhatIsAllowed) {
  absl::StatusOr<Bytes> amount = ParseBytes(GetParam());
  ASSERT_FALSE(amount.ok()) << *amount;
  EXPECT_THAT(std::string(amount.status().message()), HasSubstr(GetParam()));
  EXPECT_THAT(std::string(amount.status().message()), HasSubstr("8GiB"));
}

INSTANTIATE_TEST_SUITE_P(Wrong, ParseBytesErrorTest,
                         ::testing::Values("", " ", "g", ".", ".g", "-1", "+1g", "1e9", "8GX",
                                           "8 G B", "1,5g", "0x10", "1.5", "1.0b", "nan", "inf",
                                           "60%", "9223372036854775808", "8eib",
                                           "99999999999999999999999999999999999999999g"));

TEST(FormatBytesTest, PicksTheLargestUnit) {
  EXPECT_EQ(FormatBytes(0_B), "0 B");
  EXPECT_EQ(FormatBytes(1023_B), "1023 B");
  EXPECT_EQ(FormatBytes(1_KiB), "1.00 KiB");
  EXPECT_EQ(FormatBytes(Bytes(1395864371)), "1.30 GiB");
  EXPECT_EQ(FormatBytes(1_GiB - 1_B), "1.00 GiB");
  EXPECT_EQ(FormatBytes(1_KiB - 3_KiB), "-2.00 KiB");
  EXPECT_EQ(FormatBytes(Bytes::Max()), "8.00 EiB");
}

TEST(FormatBytesTest, WhatIsPrintedCanBeReadBack) {
  for (Bytes amount : {5_B, 3_KiB, 17_MiB, 2_GiB, 9_TiB}) {
    absl::StatusOr<Bytes> again = ParseBytes(FormatBytes(amount));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, amount);
  }
}

TEST(FormatBytesTest, StreamsTheExactCount) {
  std::ostringstream out;
  out << 2_KiB;
  EXPECT_EQ(out.str(), "2.00 KiB (2048 bytes)");
}

}  // namespace
}  // namespace ebbtide
