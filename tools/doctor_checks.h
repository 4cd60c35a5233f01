// SPDX-License-Identifier: Apache-2.0
//
// The questions of `ebbtide doctor`. Each is a pure function from facts to an answer, so that every
// answer can be tested without the machine that would give it; they are safe on any thread and the
// caller owns what they return. To add a question, add a function here and its call in
// doctor_command.cc.

#ifndef EBBTIDE_TOOLS_DOCTOR_CHECKS_H_
#define EBBTIDE_TOOLS_DOCTOR_CHECKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/options.h"
#include "tools/torch_probe.h"

namespace ebbtide {

// The minor versions of torch that there are backends for.
inline constexpr absl::string_view kSupportedTorch[] = {"2.11", "2.15"};

struct Answer {
  enum class Verdict {
    kYes,
    kNo,
    kUnknown,  // An earlier no leaves nothing to look at.
  };

  Verdict verdict;
  std::string question;  // "torch found"
  std::string detail;    // What was seen: "2.15.0+cpu". May be empty.
  std::string remedy;    // For a no: what to do.
};

// Whether the interpreter could be asked, and has a torch.
Answer CheckTorchFound(const absl::StatusOr<TorchFacts>& facts);

// The next three need a torch: REQUIRES: facts.torch_version is not empty.
Answer CheckTorchVersion(const TorchFacts& facts);
Answer CheckDispatchKey(const TorchFacts& facts);
Answer CheckCpuAllocator(const TorchFacts& facts);

// Whether the library that is preloaded is there, and beside it the backend for `torch_version`.
Answer CheckPreloadLibrary(const absl::StatusOr<std::string>& library);
Answer CheckBackendPresent(const std::string& library, const std::string& torch_version);

// Whether the backend said that it manages; `outcome` is ProbeBackend's.
Answer CheckBackendLoads(const absl::Status& outcome);

// Whether what `preloaded`, the value of LD_PRELOAD, names can stand beside `library`.
Answer CheckOtherPreloads(const std::string& preloaded, const std::string& library);

// Whether the environment sets what would be without effect, or against Ebbtide.
Answer CheckAllocatorVariables(GetEnvironment get);

// Whether the EBBTIDE_ variables of `environment` (as environ) are options with allowed values.
Answer CheckOptions(GetEnvironment get, const char* const* environment);

// Whether address space may be reserved far beyond the budget, which costs nothing: `limit` is that
// of RLIMIT_AS, or Bytes::Max() for none.
Answer CheckAddressSpace(Bytes limit);

// An answer that an earlier no has made pointless.
Answer NotChecked(absl::string_view question);

// "yes  torch found: 2.15.0", with a second line for the remedy of a no.
std::string FormatAnswer(const Answer& answer);

}  // namespace ebbtide

#endif  // EBBTIDE_TOOLS_DOCTOR_CHECKS_H_
