// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/installation.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "gtest/gtest.h"

namespace ebbtide {

Installation::Installation() {
  root_ = std::filesystem::temp_directory_path() / "ebbtide_XXXXXX";
  EBB_CHECK(mkdtemp(root_.data()) != nullptr) << root_;
  std::filesystem::create_directories(root_ + "/bin");
  std::filesystem::create_directories(root_ + "/lib/ebbtide");
  std::filesystem::copy_file("tools/ebbtide", root_ + "/lib/ebbtide/ebbtide");
  std::filesystem::copy_file("pytorch/libebbtide.so", library());
  std::filesystem::create_symlink("../lib/ebbtide/ebbtide", command());
}

Installation::~Installation() { std::filesystem::remove_all(root_); }

void Installation::Write(const std::string& path, const std::string& text) const {
  const std::filesystem::path whole = root_ + "/" + path;
  std::filesystem::create_directories(whole.parent_path());
  std::ofstream(whole) << text;
  std::filesystem::permissions(whole, std::filesystem::perms::owner_all);
}

ChildResult Installation::Run(std::vector<std::string> arguments,
                              const std::map<std::string, std::string>& environment) const {
  arguments.insert(arguments.begin(), command());
  absl::StatusOr<ChildResult> child = RunChild(arguments, environment, std::chrono::minutes(1));
  EXPECT_TRUE(child.ok()) << child.status();
  return child.value_or(ChildResult());
}

}  // namespace ebbtide
