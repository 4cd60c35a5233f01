// SPDX-License-Identifier: Apache-2.0
#include "base/budget.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace literals;
using ::testing::HasSubstr;

Budget Parse(const char* text) {
  absl::StatusOr<Budget> budget = ParseBudget(text);
  EXPECT_TRUE(budget.ok()) << budget.status();
  return *budget;
}

TEST(BudgetTest, AnAmountIsTheSameOnEveryDevice) {
  EXPECT_EQ(Parse("8GiB").Resolve(64_GiB), 8_GiB);
  EXPECT_EQ(Parse("8GiB").Resolve(4_GiB), 8_GiB);
  EXPECT_EQ(Parse("1.5g").Resolve(Bytes::Max()), 1536_MiB);
}

TEST(BudgetTest, AShareIsOfTheDevicesMemory) {
  EXPECT_EQ(Parse("50%").Resolve(8_GiB), 4_GiB);
  EXPECT_EQ(Parse(" 12.5 %").Resolve(8_GiB), 1_GiB);
  EXPECT_EQ(Parse("100%").Resolve(Bytes(12345)), Bytes(12345));
  EXPECT_EQ(Parse("100%").Resolve(Bytes::Max()), Bytes::Max());
}

TEST(BudgetTest, NeverResolvesToNothing) {
  EXPECT_EQ(Parse("1%").Resolve(Bytes(3)), Bytes(1));
  EXPECT_EQ(Parse("100%").Resolve(Bytes(0)), Bytes(1));
}

TEST(BudgetTest, PrintsWhatCanBeParsedAgain) {
  for (const char* text : {"8.00 GiB", "60%", "12.5%"}) EXPECT_EQ(Parse(text).ToString(), text);
  EXPECT_EQ(Parse(Parse("60%").ToString().c_str()), Parse("60%"));
}

class BudgetErrorTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BudgetErrorTest, SaysValueAndBothForms) {
  absl::StatusOr<Budget> budget = ParseBudget(GetParam());
  ASSERT_FALSE(budget.ok());
  EXPECT_THAT(std::string(budget.status().message()), HasSubstr(GetParam()));
  EXPECT_THAT(std::string(budget.status().message()), HasSubstr("such as 60%"));
}

INSTANTIATE_TEST_SUITE_P(Wrong, BudgetErrorTest,
                         ::testing::Values("", "%", "0", "0g", "0%", "101%", "-5%", "nan%", "1e1%",
                                           "0x10%", "5%%", "1.2.3%", "lots", "-8GiB"));

TEST(BudgetDeathTest, CodeCannotMakeAnEmptyBudget) {
  EXPECT_DEATH(Budget::OfBytes(Bytes(0)), "check failed");
  EXPECT_DEATH(Budget::OfShare(1.1), "check failed");
}

}  // namespace
}  // namespace ebbtide
