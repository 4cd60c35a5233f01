// SPDX-License-Identifier: Apache-2.0

#include "bench/unpacked_archive.h"

#include <stdlib.h>

#include <chrono>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kUnpackLimit = std::chrono::seconds(60);

}  // namespace

UnpackedArchive::~UnpackedArchive() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

absl::StatusOr<UnpackedArchive> UnpackedArchive::Unpack(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, ": not there"));
  std::string folder = (fs::temp_directory_path() / "ebbtide-data-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError(absl::StrCat("no temporary folder ", folder));
  }
  UnpackedArchive archive{fs::path(folder)};
  const std::vector<std::string> command =
      absl::EndsWith(path, ".zip")
          ? std::vector<std::string>{"python3", "-m", "zipfile", "-e", path, folder}
          : std::vector<std::string>{"tar", "-xf", path, "-C", folder};
  EBB_ASSIGN_OR_RETURN(const ChildResult unpack, RunChild(command, {}, kUnpackLimit));
  if (unpack.exit_status != 0) {
    return absl::InternalError(absl::StrCat(command[0], " of ", path, ": ", unpack.err));
  }
  return archive;
}

}  // namespace ebbtide::bench
