// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/minimalloc_problem.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

std::string Write(const std::string& name, const std::string& text) {
  const fs::path folder = fs::path(testing::TempDir()) / "problems";
  fs::create_directories(folder);
  std::ofstream(folder / name) << text;
  return (folder / name).string();
}

TEST(MinimallocProblemTest, ColumnsAreFoundByNameAndTheCapacityInTheFileName) {
  const auto problem =
      ReadMinimallocProblem(Write("A.4096.csv", "size,id,upper,lower\r\n4,b1,3,0\r\n5,b2,9,3\r\n"));
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->name, "A");
  EXPECT_EQ(problem->capacity, 4096);
  ASSERT_EQ(problem->lifetimes.size(), 2U);
  EXPECT_EQ(problem->lifetimes[1].begin, 3);
  EXPECT_EQ(problem->lifetimes[1].end, 9);
  EXPECT_EQ(problem->lifetimes[1].bytes, 5);
}

TEST(MinimallocProblemTest, WithoutACapacityItIsZero) {
  const auto problem = ReadMinimallocProblem(Write("plain.csv", "id,lower,upper,size\nb,0,1,2\n"));
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->name, "plain");
  EXPECT_EQ(problem->capacity, 0);
}

TEST(MinimallocProblemTest, OtherFilesAreRefused) {
  for (const char* text : {"id,lower,upper\nb,0,1\n", "id,lower,upper,size\nb,0,1,-2\n",
                           "id,lower,upper,size\nb,0,1,x\n", "id,lower,upper,size\nb,0\n"}) {
    EXPECT_EQ(ReadMinimallocProblem(Write("bad.csv", text)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(ReadMinimallocProblem("nowhere.csv").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadMinimallocProblems(testing::TempDir() + "/no").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ebbtide::bench
