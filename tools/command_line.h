// SPDX-License-Identifier: Apache-2.0
//
// The grammar of the `ebbtide` command line: subcommands, and flags made from the options table. To
// add a subcommand, add its field here, its declaration in command_line.cc and its call in main.cc.
// A value without ties to anything; use it on one thread.

#ifndef EBBTIDE_TOOLS_COMMAND_LINE_H_
#define EBBTIDE_TOOLS_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/run_command.h"

namespace ebbtide {

struct CommandLine {
  enum class Subcommand { kRun, kDoctor, kVersion };

  Subcommand subcommand = Subcommand::kVersion;
  RunArguments run;
  std::vector<std::string> python;  // For doctor: the interpreter to look at; may be empty.
};

// Reads the arguments without the program's name. When there is nothing left to do (help was asked
// for and has been printed to stdout, or an error line to stderr) returns nothing and sets
// `*exit_status`.
std::optional<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                            int* exit_status);

// Where the program to run starts in the arguments of `run`: after "--", or at the first word that
// is neither a flag nor the value of one. What follows belongs to the program and is never looked
// at.
struct SplitArguments {
  std::vector<std::string> own;
  std::vector<std::string> command;
};
SplitArguments SplitAtCommand(const std::vector<std::string>& arguments);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_COMMAND_LINE_H_
