// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "tools/doctor_checks.h"
#include "tools/preload.h"
#include "tools/torch_probe.h"

namespace ebbtide {
namespace {

// The installation's own interpreter is two folders above lib/ebbtide.
std::vector<std::string> DefaultPython() {
  const std::filesystem::path folder = std::filesystem::path(ExecutablePath()).parent_path();
  const std::string own = (folder / "../../bin/python").lexically_normal();
  if (access(own.c_str(), X_OK) == 0) return {own};
  return {"python3"};
}

Bytes AddressSpaceLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return Bytes::Max();
  return Bytes(static_cast<int64_t>(limit.rlim_cur));
}

// Prints each answer at once, since some take seconds, and remembers whether there was a no.
class Report {
 public:
  // Returns whether the answer is yes.
  bool Add(const Answer& answer) {
    std::cout << FormatAnswer(answer) << std::flush;
    const bool yes = answer.verdict == Answer::Verdict::kYes;
    all_yes_ = all_yes_ && yes;
    return yes;
  }
  bool all_yes() const { return all_yes_; }

 private:
  bool all_yes_ = true;
};

// Returns whether this torch can be managed as far as can be seen without trying.
bool ReportTorch(const absl::StatusOr<TorchFacts>& facts, Report& report) {
  if (report.Add(CheckTorchFound(facts)) && report.Add(CheckTorchVersion(*facts))) {
    const bool key = report.Add(CheckDispatchKey(*facts));
    return report.Add(CheckCpuAllocator(*facts)) && key;
  }
  if (!facts.ok() || facts->torch_version.empty()) {
    report.Add(NotChecked("torch version supported"));
  }
  report.Add(NotChecked("dispatch key free"));
  report.Add(NotChecked("CPU allocator replaceable"));
  return false;
}

}  // namespace

int DoctorCommand(std::vector<std::string> python) {
  if (python.empty()) python = DefaultPython();
  const char* preloaded = getenv("LD_PRELOAD");
  const std::string others = preloaded == nullptr ? "" : preloaded;
  const auto get = [](const char* name) -> const char* { return getenv(name); };

  Report report;
  const absl::StatusOr<TorchFacts> facts = ProbeTorch(python);
  const bool torch_fits = ReportTorch(facts, report);
  const absl::StatusOr<std::string> library = FindPreloadLibrary(ExecutablePath());
  const bool library_found = report.Add(CheckPreloadLibrary(library));
  if (torch_fits && library_found &&
      report.Add(CheckBackendPresent(*library, facts->torch_version))) {
    report.Add(CheckBackendLoads(ProbeBackend(python, PrependPreload(*library, others))));
  } else {
    if (!torch_fits || !library_found) report.Add(NotChecked("backend present"));
    report.Add(NotChecked("backend loads"));
  }
  report.Add(CheckOtherPreloads(others, library.value_or("")));
  report.Add(CheckAllocatorVariables(get));
  report.Add(CheckOptions(get, environ));
  report.Add(CheckAddressSpace(AddressSpaceLimit()));
  return report.all_yes() ? 0 : 1;
}

}  // namespace ebbtide
