// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/step_table.h"

#include <stdlib.h>

#include <fstream>
#include <ostream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kLimit = std::chrono::hours(2);

// As step_ratio.py ends when the interpreter lacks what a network needs.
constexpr int kNothingToMeasure = 77;

}  // namespace

std::string DefaultPython(const fs::path& source_tree) {
  const fs::path own = source_tree / ".venv/bin/python";
  std::error_code ignored;
  if (fs::exists(own, ignored)) return own.string();
  const char* cache = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  const fs::path folder = cache != nullptr  ? fs::path(cache)
                          : home != nullptr ? fs::path(home) / ".cache"
                                            : fs::path("/");
  return (folder / "ebbtide/torch-2.15.0/bin/python").string();
}

absl::Status PrintStep(const StepOptions& options,
                       const std::vector<PreloadedAllocator>& preloadable, std::ostream& out,
                       nlohmann::ordered_json* json) {
  std::error_code ignored;
  if (!fs::exists(options.python, ignored)) {
    return absl::NotFoundError(
        absl::StrCat("a training step: no interpreter at ", options.python, " (--python)"));
  }
  std::string numbers = (fs::temp_directory_path() / "ebbtide-steps-XXXXXX").string();
  if (mkdtemp(numbers.data()) == nullptr) return absl::InternalError("no temporary folder");
  const std::string path = numbers + "/numbers.json";
  std::vector<std::string> command = {
      options.python, options.source_tree + "/bench/allocator/step_ratio.py", "--json", path};
  if (!options.library.empty()) command.push_back("--library=" + options.library);
  if (options.quick) command.emplace_back("--quick");
  for (const PreloadedAllocator& allocator : preloadable) {
    command.push_back(absl::StrCat("--preload=", allocator.name, "=", allocator.library));
  }
  const absl::StatusOr<ChildResult> child = RunChild(command, {}, kLimit);
  std::ifstream file(path);
  const auto measured = nlohmann::ordered_json::parse(file, nullptr, false);
  fs::remove_all(numbers, ignored);
  if (!child.ok()) return child.status();
  out << child->out << '\n';
  if (measured.is_object()) json->update(measured);
  if (child->exit_status == 0) return absl::OkStatus();
  const std::string reason = absl::StrCat("a training step: ", child->err);
  return child->exit_status == kNothingToMeasure ? absl::NotFoundError(reason)
                                                 : absl::InternalError(reason);
}

}  // namespace ebbtide::bench
