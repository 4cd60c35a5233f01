// SPDX-License-Identifier: Apache-2.0
#include "base/status_macros.h"

#include <memory>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

absl::Status Twice(absl::Status first, int* after) {
  EBB_RETURN_IF_ERROR(first);
  ++*after;
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(absl::StatusOr<int> a, absl::StatusOr<int> b) {
  EBB_ASSIGN_OR_RETURN(const int first, a);
  int second = 0;
  EBB_ASSIGN_OR_RETURN(second, b);
  return first + second;
}

absl::StatusOr<int> Take(absl::StatusOr<std::unique_ptr<int>> box) {
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<int> owned, std::move(box));
  return *owned;
}

TEST(StatusMacrosTest, ReturnsTheErrorAndOnlyTheError) {
  int after = 0;
  EXPECT_EQ(Twice(absl::AbortedError("x"), &after), absl::AbortedError("x"));
  EXPECT_EQ(after, 0);
  EXPECT_TRUE(Twice(absl::OkStatus(), &after).ok());
  EXPECT_EQ(after, 1);
}

TEST(StatusMacrosTest, AssignsOrReturns) {
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_EQ(Sum(1, absl::NotFoundError("b")).status(), absl::NotFoundError("b"));
  EXPECT_EQ(Sum(absl::NotFoundError("a"), 2).status(), absl::NotFoundError("a"));
}

TEST(StatusMacrosTest, MovesTheValue) { EXPECT_EQ(*Take(std::make_unique<int>(5)), 5); }

}  // namespace
}  // namespace ebbtide
