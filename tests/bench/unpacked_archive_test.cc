// SPDX-License-Identifier: Apache-2.0

#include "bench/unpacked_archive.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

TEST(UnpackedArchiveTest, FilesAreThereAsLongAsTheObject) {
  const std::string folder = testing::TempDir();
  std::ofstream(fs::path(folder) / "a.txt") << "text";
  const std::string archive = folder + "/files.tar";
  const auto tar =
      RunChild({"tar", "-cf", archive, "-C", folder, "a.txt"}, {}, std::chrono::seconds(60));
  ASSERT_TRUE(tar.ok() && tar->exit_status == 0);
  fs::path unpacked;
  {
    auto files = UnpackedArchive::Unpack(archive);
    ASSERT_TRUE(files.ok()) << files.status();
    unpacked = files->folder();
    EXPECT_TRUE(fs::exists(unpacked / "a.txt"));
    const UnpackedArchive moved = *std::move(files);
    EXPECT_EQ(moved.folder(), unpacked);
    EXPECT_TRUE(fs::exists(unpacked / "a.txt")) << "moving the object leaves the files alone";
  }
  EXPECT_FALSE(fs::exists(unpacked));
}

TEST(UnpackedArchiveTest, WhatIsMissingIsNotFoundAndWhatIsBrokenInternal) {
  EXPECT_EQ(UnpackedArchive::Unpack(testing::TempDir() + "/none.zip").status().code(),
            absl::StatusCode::kNotFound);
  for (const char* name : {"/broken.zip", "/broken.tar"}) {
    const std::string path = testing::TempDir() + name;
    std::ofstream(path) << "no archive";
    EXPECT_EQ(UnpackedArchive::Unpack(path).status().code(), absl::StatusCode::kInternal) << name;
  }
}

}  // namespace
}  // namespace ebbtide::bench
