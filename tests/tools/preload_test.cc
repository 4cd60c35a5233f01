// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FindPreloadLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/preload_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Touch(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << "library";
  }

  std::string root_;
};

TEST_F(FindPreloadLibraryTest, LooksInThreePlacesInOrder) {
  Touch("/pytorch/libebbtide.so");
  EXPECT_EQ(*FindPreloadLibrary(root_ + "/tools/ebbtide"), root_ + "/pytorch/libebbtide.so");
  Touch("/lib/ebbtide/libebbtide.so");
  EXPECT_EQ(*FindPreloadLibrary(root_ + "/bin/ebbtide"), root_ + "/lib/ebbtide/libebbtide.so");
  Touch("/bin/libebbtide.so");
  EXPECT_EQ(*FindPreloadLibrary(root_ + "/bin/ebbtide"), root_ + "/bin/libebbtide.so");
}

TEST_F(FindPreloadLibraryTest, NothingFoundNamesThePlaces) {
  absl::StatusOr<std::string> library = FindPreloadLibrary(root_ + "/bin/ebbtide");
  EXPECT_EQ(library.status().code(), absl::StatusCode::kNotFound);
  for (const char* place : {"/bin", "/lib/ebbtide", "/pytorch"}) {
    EXPECT_THAT(std::string(library.status().message()), HasSubstr(root_ + place));
  }
}

TEST_F(FindPreloadLibraryTest, TheCurrentFolderNeverDecides) {
  Touch("/libebbtide.so");
  std::filesystem::current_path(root_);
  EXPECT_FALSE(FindPreloadLibrary("ebbtide").ok());
  EXPECT_FALSE(FindPreloadLibrary("").ok());
}

TEST_F(FindPreloadLibraryTest, APathThatTheLinkerWouldSplitIsRefused) {
  Touch("/my programs/libebbtide.so");
  absl::StatusOr<std::string> library = FindPreloadLibrary(root_ + "/my programs/ebbtide");
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("my programs"));
}

TEST(ExecutablePathTest, IsThisTest) {
  EXPECT_TRUE(std::filesystem::path(ExecutablePath()).is_absolute());
  EXPECT_THAT(ExecutablePath(), HasSubstr("preload_test"));
}

TEST(BackendPathTest, OneForEachMinorVersion) {
  EXPECT_EQ(*BackendPath("/x/libebbtide.so", "2.15.0+cpu"), "/x/libebbtide_torch_2_15.so");
  EXPECT_EQ(*BackendPath("/x/libebbtide.so", "2.11.1"), "/x/libebbtide_torch_2_11.so");
  for (const char* wrong : {"", "2", "two.eleven", "."}) {
    EXPECT_FALSE(BackendPath("/x/libebbtide.so", wrong).ok()) << wrong;
  }
}

TEST(PrependPreloadTest, KeepsWhatIsThere) {
  EXPECT_EQ(PrependPreload("/x/libebbtide.so", ""), "/x/libebbtide.so");
  EXPECT_EQ(PrependPreload("/x/libebbtide.so", "a.so:/b.so c.so"),
            "/x/libebbtide.so:a.so:/b.so:c.so");
}

TEST(PrependPreloadTest, LeavesOtherCopiesOut) {
  EXPECT_EQ(PrependPreload("/x/libebbtide.so", "/old/libebbtide.so:/b.so:/x/libebbtide.so"),
            "/x/libebbtide.so:/b.so");
  EXPECT_EQ(PrependPreload("/x/libebbtide.so", "libebbtide.so /y/notlibebbtide.so"),
            "/x/libebbtide.so:/y/notlibebbtide.so");
}

TEST(SplitPreloadTest, ColonsAndSpacesSeparate) {
  EXPECT_THAT(SplitPreload(" a.so: b.so::c.so "), ElementsAre("a.so", "b.so", "c.so"));
  EXPECT_THAT(SplitPreload(""), IsEmpty());
}

}  // namespace
}  // namespace ebbtide
