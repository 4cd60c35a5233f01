// SPDX-License-Identifier: Apache-2.0

#include "bench/policy/reference_points.h"

#include <limits>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<ReferencePoint>> Read(const std::string& text) {
  std::istringstream in(text);
  return ReadReferencePoints("ref", in);
}

TEST(ReferencePointsTest, OnePointALineWithFieldsThatAreIgnored) {
  const auto points = Read(
      R"({"model": "Net 6", "h": "LRU", "ratio": 0.3, "status": "OOM", "overhead": 1.25, "t": 9}
{"model": "Net 6", "h": "DTR", "ratio": 1, "status": "ok", "overhead": 1.0}
)");
  ASSERT_TRUE(points.ok()) << points.status();
  ASSERT_EQ(points->size(), 2u);
  EXPECT_EQ((*points)[0].model, "Net 6");
  EXPECT_EQ((*points)[0].policy, "LRU");
  EXPECT_EQ((*points)[0].ratio, 0.3);
  EXPECT_EQ((*points)[0].status, "OOM");
  EXPECT_EQ((*points)[0].overhead, 1.25);
  EXPECT_EQ((*points)[1].ratio, 1.0);
}

TEST(ReferencePointsTest, BrokenLinesAndNoLinesAreErrors) {
  const std::string good =
      R"({"model": "n", "h": "LRU", "ratio": 0.3, "status": "ok", "overhead": 1.25})";
  for (const char* line :
       {"", "[]", "{", R"({"model": "n"})",
        R"({"model": 1, "h": "LRU", "ratio": 1, "status": "", "overhead": 1})",
        R"({"model": "n", "h": "", "ratio": "1", "status": "", "overhead": 1})"}) {
    const auto points = Read(good + "\n" + line + "\n");
    EXPECT_EQ(points.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(points.status().message()), HasSubstr("ref line 2:")) << line;
  }
  EXPECT_EQ(Read("").status().code(), absl::StatusCode::kInvalidArgument)
      << "nothing to compare with must not look like success";
}

TEST(ReferencePointsTest, AMatchIsTheSameStatusAndATenthOfAPercent) {
  const ReferencePoint point = {"n", "LRU", 0.5, "ok", 2.0};
  EXPECT_TRUE(Matches(point, "ok", 2.0));
  EXPECT_TRUE(Matches(point, "ok", 2.0019));
  EXPECT_TRUE(Matches(point, "ok", 1.9981));
  EXPECT_FALSE(Matches(point, "ok", 2.0021));
  EXPECT_FALSE(Matches(point, "ok", 1.9979));
  EXPECT_FALSE(Matches(point, "OOM", 2.0));
  EXPECT_FALSE(Matches(point, "ok", std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace
}  // namespace ebbtide::bench
