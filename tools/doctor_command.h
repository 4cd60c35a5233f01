// SPDX-License-Identifier: Apache-2.0
//
// `ebbtide doctor`: asks every question of doctor_checks.h about one Python interpreter and this
// environment, and prints the answers to stdout as they come. Uses the process's environment: call
// it on the only thread.

#ifndef EBBTIDE_TOOLS_DOCTOR_COMMAND_H_
#define EBBTIDE_TOOLS_DOCTOR_COMMAND_H_

#include <string>
#include <vector>

namespace ebbtide {

// `python` is a command with its arguments; when empty, the python of the virtual environment that
// this command is installed in, else python3 of the PATH. Returns the exit status: 0 if every
// answer is yes, else 1.
int DoctorCommand(std::vector<std::string> python);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_DOCTOR_COMMAND_H_
