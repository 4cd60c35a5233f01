// SPDX-License-Identifier: Apache-2.0
#include "tools/child_process.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kLong = std::chrono::seconds(60);

ChildResult Shell(const std::string& script,
                  const std::map<std::string, std::string>& environment = {}) {
  absl::StatusOr<ChildResult> child = RunChild({"sh", "-c", script}, environment, kLong);
  EXPECT_TRUE(child.ok()) << child.status();
  return *child;
}

TEST(ChildProcessTest, KeepsBothStreamsAndTheStatus) {
  const ChildResult child = Shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(child.exit_status, 3);
  EXPECT_EQ(child.out, "out\n");
  EXPECT_EQ(child.err, "err\n");
}

TEST(ChildProcessTest, ASignalIsSaidAsAShellSaysIt) {
  EXPECT_EQ(Shell("kill -TERM $$").exit_status, 128 + 15);
}

// More than fits into a pipe, on both streams at once.
TEST(ChildProcessTest, MuchOutputDoesNotBlock) {
  const ChildResult child = Shell(
      "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; "
      "echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done");
  EXPECT_EQ(child.out.size(), 41u * 3000);
  EXPECT_EQ(child.err.size(), 41u * 3000);
}

TEST(ChildProcessTest, VariablesAreAddedReplacedAndRemoved) {
  setenv("CHILD_TEST_REPLACED", "before", 1);
  setenv("CHILD_TEST_REMOVED", "before", 1);
  setenv("CHILD_TEST_KEPT", "kept", 1);
  const ChildResult child = Shell(
      "echo $CHILD_TEST_ADDED $CHILD_TEST_REPLACED ${CHILD_TEST_REMOVED-gone} $CHILD_TEST_KEPT",
      {{"CHILD_TEST_ADDED", "added"},
       {"CHILD_TEST_REPLACED", "after"},
       {"CHILD_TEST_REMOVED", ""}});
  EXPECT_EQ(child.out, "added after gone kept\n");
}

TEST(ChildProcessTest, StdinIsEmpty) { EXPECT_EQ(Shell("cat; echo end").out, "end\n"); }

TEST(ChildProcessTest, AMissingProgramIsAnError) {
  absl::StatusOr<ChildResult> child = RunChild({"no-such-program-here"}, {}, kLong);
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(child.status().message()), HasSubstr("\"no-such-program-here\""));
}

TEST(ChildProcessTest, AProgramThatDoesNotEndIsKilled) {
  const Nanos start = MonotonicNow();
  absl::StatusOr<ChildResult> child = RunChild({"sleep", "100"}, {}, std::chrono::milliseconds(50));
  EXPECT_EQ(child.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(MonotonicNow() - start, std::chrono::seconds(50));
}

}  // namespace
}  // namespace ebbtide
