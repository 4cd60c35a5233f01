// SPDX-License-Identifier: Apache-2.0

#include "bench/folders.h"

#include <stdlib.h>

#include <system_error>

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

fs::path Folder(const char* variable) {
  const char* folder = getenv(variable);
  return folder != nullptr ? fs::path(folder) : fs::current_path();
}

}  // namespace

fs::path SourceTree() { return Folder("BUILD_WORKSPACE_DIRECTORY"); }

fs::path FromCaller(const std::string& path) { return Folder("BUILD_WORKING_DIRECTORY") / path; }

std::string DataDefault(const std::string& path) {
  const char* data = getenv("EBBTIDE_BENCH_DATA");
  if (data != nullptr && *data != '\0')
    return (FromCaller(data) / path).lexically_normal().string();
  const fs::path beside = SourceTree() / "../shared/data" / path;
  const fs::path inside = SourceTree() / "shared/data" / path;
  std::error_code ignored;
  const bool is_inside = !fs::exists(beside, ignored) && fs::exists(inside, ignored);
  return (is_inside ? inside : beside).lexically_normal().string();
}

}  // namespace ebbtide::bench
