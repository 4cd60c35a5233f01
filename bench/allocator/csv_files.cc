// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/csv_files.h"

#include <algorithm>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ebbtide::bench {

absl::StatusOr<std::vector<std::filesystem::path>> ListCsvFiles(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".csv") paths.push_back(entry.path());
  }
  if (error) return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  if (paths.empty()) return absl::NotFoundError(absl::StrCat(folder, ": no *.csv there"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace ebbtide::bench
