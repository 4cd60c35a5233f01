// SPDX-License-Identifier: Apache-2.0

#include "bench/policy/reference_points.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {
namespace {

constexpr double kOverheadTolerance = 1e-3;

bool ReadText(const nlohmann::json& row, const char* field, std::string* text) {
  const auto it = row.find(field);
  if (it == row.end() || !it->is_string()) return false;
  *text = it->get<std::string>();
  return true;
}

bool ReadNumber(const nlohmann::json& row, const char* field, double* number) {
  const auto it = row.find(field);
  if (it == row.end() || !it->is_number()) return false;
  *number = it->get<double>();
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ReferencePoint>> ReadReferencePoints(const std::string& name,
                                                                std::istream& in) {
  std::vector<ReferencePoint> points;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ReferencePoint& point = points.emplace_back();
    if (!row.is_object() || !ReadText(row, "model", &point.model) ||
        !ReadText(row, "h", &point.policy) || !ReadNumber(row, "ratio", &point.ratio) ||
        !ReadText(row, "status", &point.status) || !ReadNumber(row, "overhead", &point.overhead)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " line ", number, ": no object with model, h, ratio, status and overhead"));
    }
  }
  if (points.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": no points"));
  return points;
}

bool Matches(const ReferencePoint& point, const std::string& status, double overhead) {
  return status == point.status &&
         std::abs(overhead - point.overhead) <= kOverheadTolerance * point.overhead;
}

}  // namespace ebbtide::bench
