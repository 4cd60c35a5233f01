// SPDX-License-Identifier: Apache-2.0
//
// Where Ebbtide's libraries lie, and the list of libraries that the dynamic linker preloads. Pure
// functions but for looking whether files exist; safe on any thread; the caller owns what they
// return.

#ifndef EBBTIDE_TOOLS_PRELOAD_H_
#define EBBTIDE_TOOLS_PRELOAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ebbtide {

inline constexpr char kPreloadLibrary[] = "libebbtide.so";

// The absolute path of this program, with symbolic links resolved; empty if /proc is not mounted.
std::string ExecutablePath();

// The absolute path of libebbtide.so for the command at `executable`. Looked for in this order: in
// the command's own folder, in ../lib/ebbtide (an installation), in ../pytorch (a Bazel output
// tree). NotFound names the folders; FailedPrecondition if the path has a space or a colon in it,
// which end a path in LD_PRELOAD.
absl::StatusOr<std::string> FindPreloadLibrary(const std::string& executable);

// The backend for a torch of this version ("2.15.0+cpu"), beside `preload_library`, whether it is
// there or not. InvalidArgument if the version does not start with two numbers.
absl::StatusOr<std::string> BackendPath(absl::string_view preload_library,
                                        absl::string_view torch_version);

// The entries of an LD_PRELOAD value, which colons and spaces separate.
std::vector<std::string> SplitPreload(absl::string_view value);

// `library` before the entries of `value`. Other copies of libebbtide.so among them are left out:
// two of them in one process would fight over the same tensors.
std::string PrependPreload(absl::string_view library, absl::string_view value);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_PRELOAD_H_
