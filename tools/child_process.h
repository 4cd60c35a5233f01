// SPDX-License-Identifier: Apache-2.0
//
// Runs another program to its end and keeps what it wrote. For the command's own questions ("which
// torch does this python have?"), not for the user's program. Blocks the calling thread; safe on
// any thread as long as no other changes the environment meanwhile. The caller owns the result.

#ifndef EBBTIDE_TOOLS_CHILD_PROCESS_H_
#define EBBTIDE_TOOLS_CHILD_PROCESS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace ebbtide {

struct ChildResult {
  int exit_status = 0;  // As a shell says it: 128 + the signal's number if one ended the program.
  std::string out;
  std::string err;
};

// Runs `command` (looked up on the PATH, no shell) with the variables of `environment` added to
// this process's own; an empty value removes a variable. Its stdin is empty. NotFound if there is
// no such program, DeadlineExceeded if it has not ended after `limit`: it has then been killed.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& command,
                                     const std::map<std::string, std::string>& environment,
                                     Nanos limit);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_CHILD_PROCESS_H_
