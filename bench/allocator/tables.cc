// SPDX-License-Identifier: Apache-2.0
//
// Prints the tables of docs/allocator.md under "Measured":
//
//     bazel run -c opt //bench/allocator:tables -- --json out.json
//
// What a table needs and this machine lacks is named, and the table left out. The exit status is 1
// when something that is there did not work.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/allocator/minimalloc_problem.h"
#include "bench/allocator/packing_table.h"
#include "bench/allocator/planned_table.h"
#include "bench/allocator/speed_table.h"
#include "bench/allocator/step_table.h"
#include "bench/allocator/trace.h"
#include "bench/allocator/waste_table.h"
#include "bench/folders.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTables = {"waste", "tight", "planned", "speed", "step", "packing"};

// Where the build puts what this program uses: beside it, under the same root.
fs::path Built(const std::string& path) {
  return fs::read_symlink("/proc/self/exe").parent_path() / "../.." / path;
}

struct Arguments {
  std::string json;
  std::string traces = DataDefault("allocation/traces.tar.xz");
  std::string minimalloc = DataDefault("minimalloc/benchmarks/challenging");
  std::string python = DefaultPython(SourceTree());
  std::vector<std::string> only = kTables;
  bool quick = false;

  bool Wants(const std::string& table) const {
    return std::find(only.begin(), only.end(), table) != only.end();
  }
};

// Runs every table that is wanted; returns the number of those that failed.
class Tables {
 public:
  explicit Tables(const Arguments& arguments) : arguments_(arguments) {}

  int Run() {
    if (arguments_.Wants("waste") || arguments_.Wants("tight") || arguments_.Wants("planned") ||
        arguments_.Wants("speed")) {
      ReadInputs();
    }
    if (arguments_.Wants("waste") && !traces_.empty()) PrintWaste(traces_, std::cout, &json_);
    if (arguments_.Wants("tight") && !traces_.empty()) PrintTight(traces_, std::cout, &json_);
    if (arguments_.Wants("planned") && !traces_.empty()) PrintPlanned(traces_, std::cout, &json_);
    if (arguments_.Wants("speed") || arguments_.Wants("step")) {
      preloadable_ = FindPreloadable(std::cout);
    }
    if (arguments_.Wants("speed")) Note(Speed());
    if (arguments_.Wants("step")) Note(Step());
    if (arguments_.Wants("packing")) Note(Packing());
    return failures_;
  }

  const nlohmann::ordered_json& json() const { return json_; }

 private:
  // A missing input is told and no failure; a broken one is.
  void Note(const absl::Status& status) {
    if (status.ok()) return;
    std::cout << "left out: " << status.message() << "\n\n" << std::flush;
    if (!absl::IsNotFound(status)) ++failures_;
  }

  void ReadInputs() {
    absl::StatusOr<std::vector<Trace>> traces = ReadTraces(arguments_.traces);
    Note(traces.status());
    if (traces.ok()) traces_ = *std::move(traces);
  }

  absl::Status Speed() {
    SpeedOptions options;
    options.worker = Built("bench/allocator/speed_worker").lexically_normal().string();
    if (!traces_.empty()) options.traces = arguments_.traces;
    if (arguments_.quick) {
      options.rounds = 1;
      options.seconds = 0.05;
      options.threads = {1, 2, 16};
    }
    return PrintSpeed(options, preloadable_, std::cout, &json_);
  }

  absl::Status Step() {
    StepOptions options;
    options.python = arguments_.python;
    options.source_tree = SourceTree().string();
    options.quick = arguments_.quick;
    std::error_code ignored;
    const fs::path library = Built("pytorch/libebbtide.so").lexically_normal();
    if (fs::exists(library, ignored)) options.library = library.string();
    return PrintStep(options, preloadable_, std::cout, &json_);
  }

  absl::Status Packing() {
    const auto problems = ReadMinimallocProblems(arguments_.minimalloc);
    if (problems.ok()) PrintPacking(*problems, arguments_.quick ? 1 : 5, std::cout, &json_);
    return problems.status();
  }

  const Arguments& arguments_;
  std::vector<Trace> traces_;
  std::vector<PreloadedAllocator> preloadable_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
  int failures_ = 0;
};

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Measures the allocator and prints the tables of docs/allocator.md.");
  app.add_option("--json", arguments.json, "also write all numbers there");
  app.add_option("--traces", arguments.traces, "folder or archive of recorded allocations")
      ->capture_default_str();
  app.add_option("--minimalloc", arguments.minimalloc, "folder of minimalloc's problems")
      ->capture_default_str();
  app.add_option("--python", arguments.python, "interpreter with torch and torchvision")
      ->capture_default_str();
  app.add_option("--only", arguments.only, "tables, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(kTables))
      ->capture_default_str();
  app.add_flag("--quick", arguments.quick, "few repetitions: does it run?");
  CLI11_PARSE(app, argc, argv);
  for (std::string* path : {&arguments.traces, &arguments.minimalloc, &arguments.python}) {
    *path = FromCaller(*path).lexically_normal().string();
  }

  Tables tables(arguments);
  const int failures = tables.Run();
  if (!arguments.json.empty()) {
    std::ofstream file(FromCaller(arguments.json));
    file << tables.json().dump(2) << '\n';
    if (!file.flush()) {
      std::cerr << "cannot write " << arguments.json << '\n';
      return 1;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ebbtide::bench

int main(int argc, char** argv) { return ebbtide::bench::Main(argc, argv); }
