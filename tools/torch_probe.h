// SPDX-License-Identifier: Apache-2.0
//
// Asks a Python interpreter about the torch that it would import. Each function starts the
// interpreter once or twice, without Ebbtide unless it says so, and blocks until it has answered.
// Safe on any thread as RunChild is. The caller owns what is returned.

#ifndef EBBTIDE_TOOLS_TORCH_PROBE_H_
#define EBBTIDE_TOOLS_TORCH_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ebbtide {

struct TorchFacts {
  std::string python;          // The interpreter's own idea of its path.
  std::string python_version;  // "3.11.2"
  std::string torch_version;   // "2.15.0+cpu"; empty if torch cannot be imported,
  std::string torch_error;     // for this reason.
  // The dispatch keys, among those that Ebbtide can use, on which nobody has a fallback yet.
  std::vector<std::string> free_keys;
  // Whether tensors on the CPU still get their memory from torch's own allocator.
  bool own_cpu_allocator = false;
};

// The facts about `python` (a command, with arguments if need be). An error if it cannot be run, or
// gives no answer.
absl::StatusOr<TorchFacts> ProbeTorch(const std::vector<std::string>& python);

// Imports torch in `python` with `preload` as the value of LD_PRELOAD, makes a tensor, and looks
// for the line by which the backend says that it manages. Otherwise the error's text is the reason
// that was given on stderr.
absl::Status ProbeBackend(const std::vector<std::string>& python, const std::string& preload);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_TORCH_PROBE_H_
