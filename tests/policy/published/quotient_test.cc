// SPDX-License-Identifier: Apache-2.0

#include "policy/published/quotient.h"

#include <limits>

#include "gtest/gtest.h"

namespace ebbtide::published {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kTwo53 = int64_t{1} << 53;

TEST(QuotientTest, SmallNumbersDivideAsDoublesDo) {
  EXPECT_EQ((Quotient{1, 3}.Rounded()), 1.0 / 3.0);
  EXPECT_EQ((Quotient{-1, 3}.Rounded()), -1.0 / 3.0);
  EXPECT_EQ((Quotient{0, 7}.Rounded()), 0.0);
  EXPECT_EQ((Quotient{kTwo53, kTwo53}.Rounded()), 1.0);
}

TEST(QuotientTest, NoDenominatorIsInfiniteWhateverTheNumerator) {
  EXPECT_EQ((Quotient{1, 0}.Rounded()), kInfinity);
  EXPECT_EQ((Quotient{0, 0}.Rounded()), kInfinity);
  EXPECT_EQ((Quotient{-5, 0}.Rounded()), kInfinity);
  EXPECT_EQ((Quotient{1, -4}.Rounded()), kInfinity);
}

TEST(QuotientTest, ALargeDenominatorIsNotRoundedBeforeTheDivision) {
  const Quotient exact{kTwo53 - 1, kTwo53 + 1};
  EXPECT_EQ(exact.Rounded(), 0x1.ffffffffffffep-1);
  EXPECT_NE(exact.Rounded(), static_cast<double>(kTwo53 - 1) / static_cast<double>(kTwo53 + 1))
      << "this case must tell the two apart";
}

// Expected values: Python's division of whole numbers.
TEST(QuotientTest, IsTheNearestDouble) {
  EXPECT_EQ((Quotient{(int64_t{1} << 62) - 1, 3}.Rounded()), 0x1.5555555555555p+60);
  EXPECT_EQ((Quotient{3, (Int128{1} << 62) - 1}.Rounded()), 0x1.8p-61);
  EXPECT_EQ((Quotient{1, Int128{1} << 100}.Rounded()), 0x1p-100);
  EXPECT_EQ((Quotient{1'000'000'000'000'000'007, (Int128{1} << 90) + 12345}.Rounded()),
            0x1.bc16d674ec800p-31);
  EXPECT_EQ((Quotient{(int64_t{1} << 54) + 3, Int128{1} << 57}.Rounded()), 0x1.0000000000001p-3);
  EXPECT_EQ((Quotient{0, Int128{1} << 100}.Rounded()), 0.0);
}

TEST(QuotientTest, HalfwayGoesToTheEvenNeighbourOnBothSidesOfZero) {
  EXPECT_EQ((Quotient{kTwo53 + 1, 1}.Rounded()), 0x1p+53);
  EXPECT_EQ((Quotient{kTwo53 + 3, 1}.Rounded()), 0x1.0000000000002p+53);
  EXPECT_EQ((Quotient{-kTwo53 - 3, 1}.Rounded()), -0x1.0000000000002p+53);
  // A hair above halfway is no tie: 2^53 + 1 and 1/1000.
  EXPECT_EQ((Quotient{(kTwo53 + 1) * 1000 + 1, 1000}.Rounded()), 0x1.0000000000001p+53);
}

}  // namespace
}  // namespace ebbtide::published
