// SPDX-License-Identifier: Apache-2.0
#include "tools/run_command.h"

#include <errno.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"
#include "base/options.h"
#include "base/options_text.h"
#include "base/status_macros.h"
#include "tools/preload.h"

namespace ebbtide {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// The settings that will be in force, in the order of the table: a flag wins over the variable.
Variables EffectiveVariables(const std::map<std::string, std::string>& flags) {
  Variables variables;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string name = EnvironmentName(spec);
    const auto flag = flags.find(std::string(spec.name));
    const char* inherited = getenv(name.c_str());
    if (flag != flags.end()) {
      variables.emplace_back(name, flag->second);
    } else if (inherited != nullptr && *inherited != '\0') {
      variables.emplace_back(name, inherited);
    }
  }
  return variables;
}

absl::StatusOr<Options> Validate(const Variables& variables) {
  return LoadOptions([&variables](const char* name) -> const char* {
    for (const auto& [key, value] : variables) {
      if (key == name) return value.c_str();
    }
    return nullptr;
  });
}

// Makes a path of `variables` absolute, because the program may change its folder before it writes
// the file at exit, and refuses a folder that would lose the file after hours of training.
absl::Status FixPath(absl::string_view variable, std::string& value) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(value, error);
  if (error)
    return absl::UnavailableError(
        absl::StrCat("cannot tell the current folder: ", error.message()));
  const std::string folder = path.parent_path();
  // A folder with %p or %r in its name is known only to the program.
  const bool known = !absl::StrContains(folder, "%");
  if (known && access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: \"%s\" cannot be written (%s: %s); allowed is the path of a file in a "
                        "folder that exists",
                        variable, value, folder, std::strerror(errno)));
  }
  value = path;
  return absl::OkStatus();
}

absl::Status FixPaths(Variables& variables) {
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.kind != OptionSpec::Kind::kPath) continue;
    for (auto& [name, value] : variables) {
      if (name == EnvironmentName(spec)) EBB_RETURN_IF_ERROR(FixPath(name, value));
    }
  }
  return absl::OkStatus();
}

struct Environment {
  Variables variables;
  std::string library;
};

absl::StatusOr<Environment> Prepare(const RunArguments& arguments) {
  Environment environment;
  environment.variables = EffectiveVariables(arguments.options);
  EBB_ASSIGN_OR_RETURN(const Options options, Validate(environment.variables));
  EBB_RETURN_IF_ERROR(FixPaths(environment.variables));
  EBB_RETURN_IF_ERROR(InitLog({.quiet = options.quiet}));
  for (const std::string& warning : UnknownVariableWarnings(environ)) EBB_WARN("%s", warning);
  EBB_ASSIGN_OR_RETURN(environment.library, FindPreloadLibrary(ExecutablePath()));
  return environment;
}

void PrintEnvironment(const Environment& environment) {
  for (const auto& [name, value] : environment.variables) {
    std::cout << "export " << name << "=" << ShellQuote(value) << "\n";
  }
  // What the job's own environment preloads must stay, whatever it is by then.
  std::cout << "export LD_PRELOAD=" << ShellQuote(environment.library)
            << "${LD_PRELOAD:+:$LD_PRELOAD}\n";
}

int Execute(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  EBB_ERROR("cannot run \"%s\": %s", command[0], std::strerror(error));
  return error == ENOENT ? kExitCommandNotFound : kExitCannotExecute;
}

}  // namespace

int RunCommand(const RunArguments& arguments) {
  absl::StatusOr<Environment> environment = Prepare(arguments);
  if (!environment.ok()) {
    EBB_ERROR("%s", environment.status().message());
    return kExitUsage;
  }
  if (arguments.print_environment) {
    PrintEnvironment(*environment);
    return 0;
  }
  if (arguments.command.empty()) {
    EBB_ERROR("run: no command given, such as: ebbtide run --budget 8GiB -- python train.py");
    return kExitUsage;
  }
  for (const auto& [name, value] : environment->variables) {
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  const char* preloaded = getenv("LD_PRELOAD");
  const std::string preload =
      PrependPreload(environment->library, preloaded == nullptr ? "" : preloaded);
  setenv("LD_PRELOAD", preload.c_str(), /*overwrite=*/1);
  return Execute(arguments.command);
}

std::string ShellQuote(const std::string& text) {
  constexpr char kPlain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./,:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace ebbtide
