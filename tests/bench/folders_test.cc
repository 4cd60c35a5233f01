// SPDX-License-Identifier: Apache-2.0

#include "bench/folders.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

// A checkout of its own, with nothing in the environment that says otherwise.
class FoldersTest : public testing::Test {
 protected:
  FoldersTest()
      : top_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(top_);
    fs::create_directories(top_ / "checkout");
    setenv("BUILD_WORKSPACE_DIRECTORY", (top_ / "checkout").c_str(), 1);
    setenv("BUILD_WORKING_DIRECTORY", (top_ / "caller").c_str(), 1);
    unsetenv("EBBTIDE_BENCH_DATA");
  }
  ~FoldersTest() override {
    for (const char* variable :
         {"BUILD_WORKSPACE_DIRECTORY", "BUILD_WORKING_DIRECTORY", "EBBTIDE_BENCH_DATA"}) {
      unsetenv(variable);
    }
  }

  const fs::path top_;
};

TEST_F(FoldersTest, PathsAreThoseOfTheCaller) {
  EXPECT_EQ(FromCaller("out.json"), top_ / "caller/out.json");
  EXPECT_EQ(FromCaller("/tmp/out.json"), "/tmp/out.json");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(FromCaller("out.json"), fs::current_path() / "out.json");
}

TEST_F(FoldersTest, DataLiesBesideTheCheckoutOrInsideOfIt) {
  EXPECT_EQ(DataDefault("dtr/logs.zip"), top_ / "shared/data/dtr/logs.zip")
      << "where there is none, the message names the usual place";
  fs::create_directories(top_ / "checkout/shared/data/dtr");
  EXPECT_EQ(DataDefault("dtr"), top_ / "checkout/shared/data/dtr");
  fs::create_directories(top_ / "shared/data/dtr");
  EXPECT_EQ(DataDefault("dtr"), top_ / "shared/data/dtr");
}

TEST_F(FoldersTest, TheEnvironmentNamesAnotherFolder) {
  fs::create_directories(top_ / "shared/data/dtr");
  setenv("EBBTIDE_BENCH_DATA", "data", 1);
  EXPECT_EQ(DataDefault("dtr"), top_ / "caller/data/dtr");
  setenv("EBBTIDE_BENCH_DATA", "/data", 1);
  EXPECT_EQ(DataDefault("dtr"), "/data/dtr");
  setenv("EBBTIDE_BENCH_DATA", "", 1);
  EXPECT_EQ(DataDefault("dtr"), top_ / "shared/data/dtr") << "empty is as good as unset";
}

}  // namespace
}  // namespace ebbtide::bench
