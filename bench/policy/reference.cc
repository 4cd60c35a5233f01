// SPDX-License-Identifier: Apache-2.0
//
// Shows that policy/published is the published simulator: runs every point of its reference curves
// and compares status and overhead.
//
//     bazel run -c opt //bench/policy:reference -- --json ref.json
//
// Prints a line for each curve, then "N match", or the points that do not. The exit status is 1
// when a point does not match, or when the data is missing: it is no part of the project.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "bench/folders.h"
#include "bench/policy/dtr_programs.h"
#include "bench/policy/reference_points.h"
#include "nlohmann/json.hpp"
#include "policy/published/heuristics.h"
#include "policy/published/published_simulator.h"

namespace ebbtide::bench {
namespace {

// The points of one program under one heuristic, in the order of the reference.
struct Curve {
  const DtrProgram* program;
  std::string policy;
  std::vector<ReferencePoint> points;
};

absl::StatusOr<std::vector<Curve>> GroupPoints(const std::vector<ReferencePoint>& points,
                                               const std::vector<DtrProgram>& programs) {
  std::map<std::pair<std::string, std::string>, size_t> places;
  std::vector<Curve> curves;
  for (const ReferencePoint& point : points) {
    const auto [it, is_new] = places.try_emplace({point.model, point.policy}, curves.size());
    if (is_new) {
      Curve& curve = curves.emplace_back();
      curve.program = nullptr;
      for (const DtrProgram& program : programs) {
        if (program.name == point.model) curve.program = &program;
      }
      if (curve.program == nullptr) {
        return absl::NotFoundError(absl::StrCat("no log of ", point.model));
      }
      curve.policy = point.policy;
    }
    curves[it->second].points.push_back(point);
  }
  return curves;
}

class Comparison {
 public:
  absl::Status RunCurve(const Curve& curve) {
    const published::Baseline& baseline = curve.program->baseline;
    const Nanos start = MonotonicNow();
    size_t matches = 0;
    for (const ReferencePoint& point : curve.points) {
      EBB_ASSIGN_OR_RETURN(
          const std::unique_ptr<published::Heuristic> heuristic,
          published::MakeHeuristic(curve.policy, curve.program->schedule.storages.size()));
      published::PublishedSimulator simulator(&curve.program->schedule, heuristic.get(),
                                              published::LimitsAt(baseline, point.ratio));
      const published::Outcome outcome = simulator.Run();
      const std::string status(published::StatusName(outcome.status));
      const double overhead = outcome.Overhead(baseline);
      if (Matches(point, status, overhead)) {
        ++matches;
      } else {
        differences_.push_back(absl::StrFormat("%s, %s, ratio %.1f: %s %.6f, published %s %.6f",
                                               point.model, point.policy, point.ratio, status,
                                               overhead, point.status, point.overhead));
      }
      rows_.push_back({{"model", point.model},
                       {"policy", point.policy},
                       {"ratio", point.ratio},
                       {"iteration", 1},
                       {"status", status},
                       {"overhead", overhead}});
    }
    matches_ += matches;
    std::cout << absl::StrFormat("%-18s %-15s %2d of %2d match, %.2f s\n", curve.program->name,
                                 curve.policy, matches, curve.points.size(),
                                 ToSeconds(MonotonicNow() - start))
              << std::flush;
    return absl::OkStatus();
  }

  // True if every point matches.
  bool PrintSummary() const {
    for (const std::string& difference : differences_) std::cout << difference << '\n';
    if (differences_.empty()) {
      std::cout << matches_ << " match\n";
    } else {
      std::cout << matches_ << " match, " << differences_.size() << " do not\n";
    }
    return differences_.empty();
  }

  const nlohmann::ordered_json& rows() const { return rows_; }

 private:
  size_t matches_ = 0;
  std::vector<std::string> differences_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

absl::Status RunAll(const std::filesystem::path& data, Comparison* comparison) {
  const std::string reference = (data / "reference/simrd.jsonl").string();
  std::ifstream file(reference);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(
        reference, ": not there. --data or EBBTIDE_BENCH_DATA names the folder with the data"));
  }
  EBB_ASSIGN_OR_RETURN(const std::vector<ReferencePoint> points,
                       ReadReferencePoints(reference, file));
  EBB_ASSIGN_OR_RETURN(const std::vector<DtrProgram> programs,
                       ReadDtrPrograms((data / "dtr/logs.zip").string()));
  EBB_ASSIGN_OR_RETURN(const std::vector<Curve> curves, GroupPoints(points, programs));
  for (const Curve& curve : curves) EBB_RETURN_IF_ERROR(comparison->RunCurve(curve));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::string data = DataDefault("");
  std::string json;
  CLI::App app("Compares policy/published with the curves of the published DTR simulator.");
  app.add_option("--data", data, "folder with reference/simrd.jsonl and dtr/logs.zip")
      ->capture_default_str();
  app.add_option("--json", json, "also write all points there");
  CLI11_PARSE(app, argc, argv);

  Comparison comparison;
  if (const absl::Status status = RunAll(FromCaller(data), &comparison); !status.ok()) {
    std::cerr << status.message() << '\n';
    return 1;
  }
  if (!json.empty()) {
    std::ofstream file(FromCaller(json));
    file << comparison.rows().dump(2) << '\n';
    if (!file.flush()) {
      std::cerr << "cannot write " << json << '\n';
      return 1;
    }
  }
  return comparison.PrintSummary() ? 0 : 1;
}

}  // namespace
}  // namespace ebbtide::bench

int main(int argc, char** argv) { return ebbtide::bench::Main(argc, argv); }
