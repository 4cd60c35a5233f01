// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_checks.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/options_text.h"
#include "tools/preload.h"

namespace ebbtide {
namespace {

using Verdict = Answer::Verdict;

Answer Yes(absl::string_view question, std::string detail) {
  return {Verdict::kYes, std::string(question), std::move(detail), ""};
}

Answer No(absl::string_view question, std::string detail, std::string remedy) {
  return {Verdict::kNo, std::string(question), std::move(detail), std::move(remedy)};
}

std::string Supported() { return absl::StrJoin(kSupportedTorch, ", "); }

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Why `entry` of LD_PRELOAD, which is not our own, cannot stand beside it; empty if it can.
std::string PreloadObjection(const std::string& entry) {
  const absl::string_view name = FileName(entry);
  if (name == kPreloadLibrary) return "is another copy of Ebbtide";
  if (absl::StrContains(entry, "/") && !Exists(entry)) return "does not exist";
  for (const char* sanitizer : {"libasan", "libtsan", "libmsan", "libhwasan", "libclang_rt."}) {
    if (absl::StartsWith(name, sanitizer)) return "is a sanitizer, which must be preloaded first";
  }
  return "";
}

}  // namespace

Answer CheckTorchFound(const absl::StatusOr<TorchFacts>& facts) {
  constexpr absl::string_view kQuestion = "torch found";
  if (!facts.ok()) {
    return No(kQuestion, std::string(facts.status().message()),
              "name an interpreter: ebbtide doctor -- /path/to/python");
  }
  if (facts->torch_version.empty()) {
    return No(kQuestion,
              absl::StrFormat("%s (Python %s): %s", facts->python, facts->python_version,
                              facts->torch_error),
              absl::StrFormat("%s -m pip install \"torch==%s.*\", or name another interpreter: "
                              "ebbtide doctor -- /path/to/python",
                              facts->python, *std::rbegin(kSupportedTorch)));
  }
  return Yes(kQuestion, absl::StrFormat("%s in %s (Python %s)", facts->torch_version, facts->python,
                                        facts->python_version));
}

Answer CheckTorchVersion(const TorchFacts& facts) {
  constexpr absl::string_view kQuestion = "torch version supported";
  for (absl::string_view version : kSupportedTorch) {
    if (absl::StartsWith(facts.torch_version, absl::StrCat(version, "."))) {
      return Yes(kQuestion, std::string(version));
    }
  }
  return No(kQuestion, absl::StrFormat("%s; supported are %s", facts.torch_version, Supported()),
            absl::StrFormat("%s -m pip install \"torch==%s.*\"", facts.python,
                            *std::rbegin(kSupportedTorch)));
}

Answer CheckDispatchKey(const TorchFacts& facts) {
  constexpr absl::string_view kQuestion = "dispatch keys free";
  constexpr size_t kNeeded = 2;
  if (facts.free_keys.size() == kNeeded) {
    return Yes(kQuestion, absl::StrJoin(facts.free_keys, ", "));
  }
  return No(kQuestion, "Fake or DeferredInit has a fallback already",
            "find what registers one when torch is imported, such as an extension with an entry "
            "point; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading those");
}

Answer CheckCpuAllocator(const TorchFacts& facts) {
  constexpr absl::string_view kQuestion = "CPU allocator replaceable";
  if (facts.own_cpu_allocator) return Yes(kQuestion, "");
  return No(kQuestion, "something else has replaced torch's allocator for the CPU",
            "find the extension that sets it when torch is imported; only one can");
}

Answer CheckPreloadLibrary(const absl::StatusOr<std::string>& library) {
  constexpr absl::string_view kQuestion = "libraries found";
  if (library.ok()) return Yes(kQuestion, *library);
  return No(kQuestion, std::string(library.status().message()),
            "tools/quickstart builds everything and puts it where the command looks");
}

Answer CheckBackendPresent(const std::string& library, const std::string& torch_version) {
  constexpr absl::string_view kQuestion = "backend present";
  const absl::StatusOr<std::string> backend = BackendPath(library, torch_version);
  if (backend.ok() && Exists(*backend)) return Yes(kQuestion, *backend);
  return No(kQuestion,
            backend.ok() ? absl::StrFormat("there is no %s", *backend)
                         : std::string(backend.status().message()),
            absl::StrFormat("build it: bazel build //pytorch:%s",
                            backend.ok() ? FileName(*backend) : "all"));
}

Answer CheckBackendLoads(const absl::Status& outcome) {
  constexpr absl::string_view kQuestion = "backend loads";
  if (outcome.ok()) return Yes(kQuestion, "");
  return No(kQuestion, std::string(outcome.message()),
            "if the reason above does not say, look at a whole run: ebbtide run --log debug -- "
            "python -c \"import torch\"");
}

Answer CheckOtherPreloads(const std::string& preloaded, const std::string& library) {
  constexpr absl::string_view kQuestion = "other preloads agree";
  std::vector<std::string> harmless;
  for (const std::string& entry : SplitPreload(preloaded)) {
    if (entry == library) continue;
    if (const std::string why = PreloadObjection(entry); !why.empty()) {
      return No(kQuestion, absl::StrFormat("LD_PRELOAD names %s, which %s", entry, why),
                "take it out of LD_PRELOAD for this program");
    }
    harmless.push_back(entry);
  }
  return Yes(kQuestion, harmless.empty() ? "none" : absl::StrJoin(harmless, ", "));
}

Answer CheckAllocatorVariables(GetEnvironment get) {
  constexpr absl::string_view kQuestion = "allocator variables agree";
  const char* huge_pages = get("THP_MEM_ALLOC_ENABLE");
  if (huge_pages != nullptr && absl::string_view(huge_pages) == "1") {
    return No(kQuestion,
              "THP_MEM_ALLOC_ENABLE=1 asks torch's own CPU allocator for huge pages, which managed "
              "tensors do not use",
              "unset THP_MEM_ALLOC_ENABLE");
  }
  std::vector<std::string> harmless;
  for (const char* name :
       {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "MALLOC_CONF", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"}) {
    if (get(name) != nullptr) harmless.push_back(name);
  }
  if (harmless.empty()) return Yes(kQuestion, "none set");
  return Yes(kQuestion, absl::StrFormat("%s set, without effect on managed tensors",
                                        absl::StrJoin(harmless, ", ")));
}

Answer CheckOptions(GetEnvironment get, const char* const* environment) {
  constexpr absl::string_view kQuestion = "options valid";
  const absl::StatusOr<Options> options = LoadOptions(get);
  if (!options.ok()) {
    return No(kQuestion, std::string(options.status().message()), "set or unset the variable");
  }
  const std::vector<std::string> unknown = UnknownVariableWarnings(environment);
  if (!unknown.empty()) {
    return No(kQuestion, absl::StrJoin(unknown, "; "), "set or unset the variable");
  }
  return Yes(kQuestion, options->budget.has_value()
                            ? absl::StrCat("budget ", options->budget->ToString())
                            : "no budget: observe only");
}

Answer CheckAddressSpace(Bytes limit) {
  constexpr absl::string_view kQuestion = "address space unlimited";
  if (limit == Bytes::Max()) return Yes(kQuestion, "");
  return No(kQuestion, absl::StrCat("limited to ", FormatBytes(limit)),
            "ulimit -v unlimited: addresses are reserved in advance and cost no memory; the budget "
            "is what limits memory");
}

Answer NotChecked(absl::string_view question) {
  return {Verdict::kUnknown, std::string(question), "not checked, because of the no above", ""};
}

std::string FormatAnswer(const Answer& answer) {
  const char* word = answer.verdict == Verdict::kYes  ? "yes"
                     : answer.verdict == Verdict::kNo ? "no "
                                                      : "-  ";
  std::string text = absl::StrFormat("%s  %s", word, answer.question);
  if (!answer.detail.empty()) absl::StrAppend(&text, ": ", answer.detail);
  text.push_back('\n');
  if (!answer.remedy.empty()) absl::StrAppend(&text, "     remedy: ", answer.remedy, "\n");
  return text;
}

}  // namespace ebbtide
