// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ebbtide {
namespace {

bool IsPreloadLibrary(absl::string_view entry) {
  return entry == kPreloadLibrary || absl::EndsWith(entry, absl::StrCat("/", kPreloadLibrary));
}

}  // namespace

std::string ExecutablePath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

absl::StatusOr<std::string> FindPreloadLibrary(const std::string& executable) {
  // A relative path would make the current folder decide what is preloaded.
  if (!absl::StartsWith(executable, "/")) {
    return absl::NotFoundError("cannot tell where this command lies, because /proc is not mounted");
  }
  const std::filesystem::path folder = std::filesystem::path(executable).parent_path();
  const std::filesystem::path above = folder.parent_path();
  std::vector<std::string> looked_in;
  for (const std::filesystem::path& place : {folder, above / "lib/ebbtide", above / "pytorch"}) {
    const std::string candidate = place / kPreloadLibrary;
    std::error_code error;
    if (!std::filesystem::exists(candidate, error)) {
      looked_in.push_back(place);
      continue;
    }
    if (candidate.find_first_of(" :") != std::string::npos) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "\"%s\" cannot be preloaded: the dynamic linker ends a path at a space or a colon; move "
          "Ebbtide to a folder without them",
          candidate));
    }
    return candidate;
  }
  return absl::NotFoundError(
      absl::StrFormat("cannot find %s in %s; build it with \"bazel build //...\" or run "
                      "tools/quickstart",
                      kPreloadLibrary, absl::StrJoin(looked_in, ", ")));
}

absl::StatusOr<std::string> BackendPath(absl::string_view preload_library,
                                        absl::string_view torch_version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(torch_version, '.');
  int major = 0;
  int minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1], &minor)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\" is not a version of torch", torch_version));
  }
  const absl::string_view folder = preload_library.substr(0, preload_library.rfind('/') + 1);
  return absl::StrFormat("%slibebbtide_torch_%d_%d.so", folder, major, minor);
}

std::vector<std::string> SplitPreload(absl::string_view value) {
  return absl::StrSplit(value, absl::ByAnyChar(": "), absl::SkipEmpty());
}

std::string PrependPreload(absl::string_view library, absl::string_view value) {
  std::string list(library);
  for (const std::string& entry : SplitPreload(value)) {
    if (!IsPreloadLibrary(entry)) absl::StrAppend(&list, ":", entry);
  }
  return list;
}

}  // namespace ebbtide
