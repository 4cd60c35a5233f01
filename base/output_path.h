// SPDX-License-Identifier: Apache-2.0
//
// Names of files that several processes of one job write: each process must get a file of its own,
// so a name may hold places for the process id and the rank. Pure functions, safe on any thread;
// the caller owns what they return. The environment is read by the caller.

#ifndef EBBTIDE_BASE_OUTPUT_PATH_H_
#define EBBTIDE_BASE_OUTPUT_PATH_H_

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"

namespace ebbtide {

// `pattern` with %p replaced by `pid`, %r by `rank` and %% by a percent sign. Any other character
// after a percent sign stays as it is, percent sign included.
std::string ExpandOutputPath(absl::string_view pattern, pid_t pid, absl::string_view rank);

// The rank of this process in a distributed job for %r: the value of the variable RANK, which every
// launcher of the PyTorch world sets, when it is a plain number; else "0".
std::string RankText(const char* rank_variable);

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_OUTPUT_PATH_H_
