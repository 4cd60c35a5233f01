// SPDX-License-Identifier: Apache-2.0

#include "bench/policy/dtr_programs.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/unpacked_archive.h"
#include "nlohmann/json.hpp"
#include "policy/published/read_schedule.h"
#include "tracker/dtr_log.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::ifstream> Open(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), ": cannot be opened"));
  return file;
}

absl::StatusOr<DtrProgram> ReadProgram(std::string name, const fs::path& path) {
  EBB_ASSIGN_OR_RETURN(std::ifstream file, Open(path));
  DtrLog log(path.filename().string(), &file);
  DtrProgram program;
  program.name = std::move(name);
  EBB_ASSIGN_OR_RETURN(program.schedule, published::ReadSchedule(&log));
  program.baseline = published::MeasureBaseline(program.schedule);
  return program;
}

absl::StatusOr<std::vector<DtrProgram>> ReadFolder(const fs::path& folder) {
  const fs::path manifest_path = folder / "logs/manifest.json";
  EBB_ASSIGN_OR_RETURN(std::ifstream file, Open(manifest_path));
  const nlohmann::json manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const absl::Status broken = absl::InvalidArgumentError(
      absl::StrCat(manifest_path.string(), ": no list `models` of objects with name and log"));
  if (!manifest.is_object() || !manifest.contains("models")) return broken;
  std::vector<DtrProgram> programs;
  for (const nlohmann::json& model : manifest["models"]) {
    if (!model.is_object() || !model.contains("name") || !model["name"].is_string() ||
        !model.contains("log") || !model["log"].is_string()) {
      return broken;
    }
    EBB_ASSIGN_OR_RETURN(DtrProgram program, ReadProgram(model["name"].get<std::string>(),
                                                         folder / model["log"].get<std::string>()));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace

absl::StatusOr<std::vector<DtrProgram>> ReadDtrPrograms(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return ReadFolder(path);
  EBB_ASSIGN_OR_RETURN(const UnpackedArchive archive, UnpackedArchive::Unpack(path));
  return ReadFolder(archive.folder());
}

}  // namespace ebbtide::bench
