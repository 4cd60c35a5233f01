// SPDX-License-Identifier: Apache-2.0
#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/version.h"

namespace ebbtide {
namespace {

// Shows what cannot be told from the flags: the command that follows them.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) { column_width(28); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return absl::StrCat("Usage: ", usage_, "\n");
  }

 private:
  const std::string usage_;
};

bool TakesValue(absl::string_view argument) {
  for (const OptionSpec& spec : OptionTable()) {
    if (argument == absl::StrCat("--", spec.name)) return spec.kind != OptionSpec::Kind::kFlag;
  }
  return false;
}

std::string Describe(const OptionSpec& spec) {
  return absl::StrFormat("%s [%s]", spec.summary, spec.default_text);
}

// Declares a flag for each row of the table. Values are only collected, an empty one standing for
// none: they are judged together with the variables, by the table's own code.
void AddTableOptions(CLI::App& app, std::map<std::string, std::string>& values) {
  for (const OptionSpec& spec : OptionTable()) {
    const std::string name(spec.name);
    if (spec.kind == OptionSpec::Kind::kFlag) {
      app.add_flag("--" + name, values[name], Describe(spec));
    } else {
      app.add_option("--" + name, values[name], Describe(spec))
          ->type_name(std::string(spec.value_name))
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

void AddRun(CLI::App& app, RunArguments& arguments) {
  CLI::App* run = app.add_subcommand("run", "Run a program with Ebbtide preloaded");
  run->formatter(
      std::make_shared<HelpFormatter>("ebbtide run [options] [--] command [arguments...]"));
  run->footer(
      "Each option is also a variable: --min-bytes is EBBTIDE_MIN_BYTES. Without a budget Ebbtide\n"
      "only observes. Examples:\n"
      "  ebbtide run --budget 8GiB -- python train.py\n"
      "  ebbtide run --budget 60% --stats-file stats.%r.json -- torchrun train.py\n"
      "  ebbtide run --budget 8GiB --print-env >> job.sh");
  AddTableOptions(*run, arguments.options);
  run->add_flag("--print-env", arguments.print_environment,
                "print the settings as export lines for a job script, and run nothing");
}

void AddDoctor(CLI::App& app) {
  CLI::App* doctor = app.add_subcommand("doctor", "Check whether programs can be managed here");
  doctor->formatter(std::make_shared<HelpFormatter>("ebbtide doctor [--] [python [arguments...]]"));
  doctor->footer(
      "Answers each question with yes or no, and each no with a remedy. Looks at the python "
      "beside\n"
      "this command, else at the first python3 on the PATH, unless one is given. Exit status: 0\n"
      "all yes, 1 some no.");
}

}  // namespace

SplitArguments SplitAtCommand(const std::vector<std::string>& arguments) {
  SplitArguments split;
  auto next = arguments.begin();
  for (; next != arguments.end() && absl::StartsWith(*next, "-"); ++next) {
    if (*next == "--") {
      ++next;
      break;
    }
    split.own.push_back(*next);
    if (TakesValue(*next) && next + 1 != arguments.end()) split.own.push_back(*++next);
  }
  split.command.assign(next, arguments.end());
  return split;
}

std::optional<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                            int* exit_status) {
  CommandLine line;
  CLI::App app("Ebbtide lets training jobs run inside a memory budget.", "ebbtide");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", absl::StrCat("ebbtide ", kVersion));
  AddRun(app, line.run);
  AddDoctor(app);
  app.add_subcommand("version", "Print the version");

  const auto is_first_word = [&arguments](const CLI::App* subcommand) {
    return subcommand->get_name() == arguments[0];
  };
  if (!arguments.empty() && !absl::StartsWith(arguments[0], "-") &&
      app.get_subcommands(is_first_word).empty()) {
    EBB_ERROR("\"%s\" is not a subcommand; there are run, doctor and version", arguments[0]);
    *exit_status = kExitUsage;
    return std::nullopt;
  }
  // The program's own words never reach the parser, which would look for our flags among them.
  std::vector<std::string> own = arguments;
  std::vector<std::string> command;
  if (!arguments.empty() && (arguments[0] == "run" || arguments[0] == "doctor")) {
    SplitArguments split = SplitAtCommand({arguments.begin() + 1, arguments.end()});
    own = std::move(split.own);
    own.insert(own.begin(), arguments[0]);
    command = std::move(split.command);
  }
  std::reverse(own.begin(), own.end());  // The parser takes words from the end.
  try {
    app.parse(own);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      *exit_status = app.exit(error);
    } else {
      EBB_ERROR("%s; see ebbtide --help", error.what());
      *exit_status = kExitUsage;
    }
    return std::nullopt;
  }
  if (app.got_subcommand("run")) {
    line.subcommand = CommandLine::Subcommand::kRun;
    line.run.command = std::move(command);
    std::erase_if(line.run.options, [](const auto& option) { return option.second.empty(); });
  } else if (app.got_subcommand("doctor")) {
    line.subcommand = CommandLine::Subcommand::kDoctor;
    line.python = std::move(command);
  }
  return line;
}

}  // namespace ebbtide
