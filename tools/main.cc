// SPDX-License-Identifier: Apache-2.0
//
// The `ebbtide` command.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/version.h"
#include "tools/command_line.h"
#include "tools/doctor_checks.h"
#include "tools/doctor_command.h"
#include "tools/run_command.h"

namespace ebbtide {
namespace {

int PrintVersion() {
  std::cout << "ebbtide " << kVersion << " (torch " << absl::StrJoin(kSupportedTorch, ", ")
            << ")\n";
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  int exit_status = 0;
  std::optional<CommandLine> line = ParseCommandLine(arguments, &exit_status);
  if (!line.has_value()) return exit_status;
  switch (line->subcommand) {
    case CommandLine::Subcommand::kRun:
      return RunCommand(line->run);
    case CommandLine::Subcommand::kDoctor:
      return DoctorCommand(line->python);
    case CommandLine::Subcommand::kVersion:
      return PrintVersion();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) { return ebbtide::Main({argv + 1, argv + argc}); }
