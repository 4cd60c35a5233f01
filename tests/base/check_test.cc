// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(CheckTest, PassingCheckDoesNotBuildItsText) {
  int built = 0;
  auto text = [&built] { return ++built; };
  EBB_CHECK(1 + 1 == 2) << text();
  EXPECT_EQ(built, 0);
}

TEST(CheckTest, IsOneStatement) {
  bool reached = false;
  if (false)
    EBB_CHECK(false) << "not reached";
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(CheckDeathTest, FailingCheckSaysWhereAndWhy) {
  const int size_class = 7;
  EXPECT_DEATH(EBB_CHECK(size_class < 5) << "size class " << size_class,
               "\\[ebbtide\\] check failed .*check_test.cc:[0-9]+: size_class < 5: size class 7");
}

TEST(CheckDeathTest, TextIsOptional) { EXPECT_DEATH(EBB_CHECK(1 > 2), "check failed .*: 1 > 2\n"); }

TEST(CheckDeathTest, DebugCheckIsOnlyForDebugBuilds) {
  int evaluated = 0;
#ifdef NDEBUG
  EBB_DCHECK(++evaluated < 0) << "must not be evaluated";
  EXPECT_EQ(evaluated, 0);
#else
  EXPECT_DEATH(EBB_DCHECK(++evaluated < 0), "evaluated < 0");
#endif
}

}  // namespace
}  // namespace ebbtide
