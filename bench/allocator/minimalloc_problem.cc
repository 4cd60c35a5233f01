// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/minimalloc_problem.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "bench/allocator/csv_files.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Cells(absl::string_view line) {
  return absl::StrSplit(absl::StripSuffix(line, "\r"), ',');
}

bool ReadLifetime(absl::string_view line, const std::array<size_t, 3>& columns,
                  Lifetime* lifetime) {
  const std::vector<std::string> cells = Cells(line);
  int64_t values[3];
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] >= cells.size() || !absl::SimpleAtoi(cells[columns[i]], &values[i]) ||
        values[i] < 0) {
      return false;
    }
  }
  *lifetime = {values[0], values[1], values[2]};
  return true;
}

}  // namespace

absl::StatusOr<MinimallocProblem> ReadMinimallocProblem(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  MinimallocProblem problem;
  const std::vector<std::string> names =
      absl::StrSplit(fs::path(path).filename().string(), absl::MaxSplits('.', 2));
  problem.name = names[0];
  if (names.size() < 3 || !absl::SimpleAtoi(names[1], &problem.capacity)) problem.capacity = 0;
  const std::vector<std::string> header = Cells(line);
  const auto column = [&](absl::string_view name) {
    return static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const std::array<size_t, 3> columns = {column("lower"), column("upper"), column("size")};
  while (std::getline(file, line)) {
    if (!ReadLifetime(line, columns, &problem.lifetimes.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not a file with the columns lower,upper,size"));
    }
  }
  return problem;
}

absl::StatusOr<std::vector<MinimallocProblem>> ReadMinimallocProblems(const std::string& folder) {
  EBB_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, ListCsvFiles(folder));
  std::vector<MinimallocProblem> problems;
  for (const fs::path& path : paths) {
    EBB_ASSIGN_OR_RETURN(MinimallocProblem problem, ReadMinimallocProblem(path.string()));
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace ebbtide::bench
