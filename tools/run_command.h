// SPDX-License-Identifier: Apache-2.0
//
// `ebbtide run`: sets the environment so that Ebbtide is preloaded with the settings asked for, and
// becomes the program. No process stays behind, so the process id, signals and the exit status are
// the program's own, and nothing is ever written to stdout except what --print-env asks for.
// Uses the process's environment: call it on the only thread.

#ifndef EBBTIDE_TOOLS_RUN_COMMAND_H_
#define EBBTIDE_TOOLS_RUN_COMMAND_H_

#include <map>
#include <string>
#include <vector>

namespace ebbtide {

// Exit statuses of the command itself.
inline constexpr int kExitUsage = 2;              // An option, or the installation, is wrong.
inline constexpr int kExitCannotExecute = 126;    // As a shell: found, but not a program.
inline constexpr int kExitCommandNotFound = 127;  // As a shell.

struct RunArguments {
  // From an option's name in the table ("min-bytes") to the value of its flag.
  std::map<std::string, std::string> options;
  // Print the settings as lines for a shell instead of starting anything.
  bool print_environment = false;
  std::vector<std::string> command;
};

// Does not return if the command starts. Otherwise has written one line to stderr, or what
// --print-env asks for to stdout, and returns the exit status for the process.
int RunCommand(const RunArguments& arguments);

// `text` as one word of a POSIX shell that means exactly `text`.
std::string ShellQuote(const std::string& text);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_RUN_COMMAND_H_
