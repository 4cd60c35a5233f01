// SPDX-License-Identifier: Apache-2.0

#include "bench/policy/dtr_programs.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kLog[] = R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CALL","NAME":"f","TIME":"5","ARGS":[],"RESULT":["a"]}
{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"16"}
{"INSTRUCTION":"ALIAS","NAME":"a","ALIAS":"-1"}
)";

// An empty folder with logs/ in it.
class DtrProgramsTest : public testing::Test {
 protected:
  DtrProgramsTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "logs");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / "logs" / name) << text;
  }

  const fs::path folder_;
};

TEST_F(DtrProgramsTest, AFolderAndAnArchiveHoldTheProgramsOfTheManifest) {
  Write("b.log", kLog);
  Write("a.log", kLog);
  Write("manifest.json", R"({"models": [{"name": "Net B", "log": "logs/b.log"},
                                        {"name": "Net A", "log": "logs/a.log", "desc": ""}]})");
  const std::string archive = (folder_ / "logs.zip").string();
  const auto zip =
      RunChild({"python3", "-m", "zipfile", "-c", archive, (folder_ / "logs").string()}, {},
               std::chrono::seconds(60));
  ASSERT_TRUE(zip.ok()) << zip.status();
  ASSERT_EQ(zip->exit_status, 0) << zip->err;
  for (const std::string& path : {folder_.string(), archive}) {
    const auto programs = ReadDtrPrograms(path);
    ASSERT_TRUE(programs.ok()) << programs.status();
    ASSERT_EQ(programs->size(), 2u);
    EXPECT_EQ((*programs)[0].name, "Net B");
    EXPECT_EQ((*programs)[1].name, "Net A");
    EXPECT_EQ((*programs)[0].baseline.peak_bytes, 16);
    EXPECT_EQ((*programs)[0].baseline.total_cost, 5);
    EXPECT_EQ((*programs)[0].schedule.steps.size(), 2u) << "the call, and a pin for what it made";
  }
}

TEST_F(DtrProgramsTest, MissingFilesAreNotFoundAndBrokenOnesInvalid) {
  EXPECT_EQ(ReadDtrPrograms((folder_ / "nothing").string()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadDtrPrograms(folder_.string()).status().code(), absl::StatusCode::kNotFound);
  for (const char* manifest : {"{", "[]", "{}", R"({"models": [{"name": "n"}]})",
                               R"({"models": ["n"]})", R"({"models": [{"name": 1, "log": 2}]})"}) {
    Write("manifest.json", manifest);
    EXPECT_EQ(ReadDtrPrograms(folder_.string()).status().code(), absl::StatusCode::kInvalidArgument)
        << manifest;
  }
  Write("manifest.json", R"({"models": [{"name": "n", "log": "logs/n.log"}]})");
  EXPECT_EQ(ReadDtrPrograms(folder_.string()).status().code(), absl::StatusCode::kNotFound);
  Write("n.log", "{}");
  const auto programs = ReadDtrPrograms(folder_.string());
  EXPECT_EQ(programs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(programs.status().message()), HasSubstr("n.log line 1"));
}

TEST_F(DtrProgramsTest, WhatIsNoArchiveIsAnError) {
  std::ofstream(folder_ / "broken.zip") << "no archive";
  EXPECT_EQ(ReadDtrPrograms((folder_ / "broken.zip").string()).status().code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ebbtide::bench
