// SPDX-License-Identifier: Apache-2.0
#include "tools/torch_probe.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "tools/child_process.h"

namespace ebbtide {
namespace {

// A cold import of torch from a network file system takes a minute.
constexpr Nanos kLimit = std::chrono::minutes(5);

// Every answer is a line of its own with a prefix, because what is imported may print too. The
// allocators are compared as addresses: Python sees no more of them.
constexpr char kProbeScript[] = R"(
import ctypes, os, platform, sys

def say(name, value):
    print("ebbtide-probe", name, str(value).replace("\n", " "), flush=True)

say("python", sys.executable)
say("python_version", platform.python_version())
try:
    import torch
except BaseException as error:
    say("torch_error", "%s: %s" % (type(error).__name__, error))
    sys.exit(0)
say("torch_version", torch.__version__)
for key in ("Fake", "DeferredInit"):
    parsed = torch._C._parse_dispatch_key(key)
    if parsed is not None and not torch._C._dispatch_has_backend_fallback(parsed):
        say("free_key", key)
library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
current = library._ZN3c1015GetCPUAllocatorEv
default = library._ZN3c1022GetDefaultCPUAllocatorEv
current.restype = default.restype = ctypes.c_void_p
say("own_cpu_allocator", int(current() == default()))
)";

constexpr char kLoadScript[] = "import torch; torch.ones(1 << 16).sum().item()";

std::vector<std::string> WithScript(std::vector<std::string> python, const char* script) {
  python.push_back("-c");
  python.push_back(script);
  return python;
}

std::string LastLine(absl::string_view text) {
  std::string last;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) last = std::string(line);
  }
  return last;
}

void Take(absl::string_view name, absl::string_view value, TorchFacts& facts) {
  const std::map<absl::string_view, std::string*> texts = {
      {"python", &facts.python},
      {"python_version", &facts.python_version},
      {"torch_error", &facts.torch_error},
      {"torch_version", &facts.torch_version},
  };
  if (const auto found = texts.find(name); found != texts.end())
    *found->second = std::string(value);
  if (name == "free_key") facts.free_keys.emplace_back(value);
  if (name == "own_cpu_allocator") facts.own_cpu_allocator = value == "1";
}

}  // namespace

absl::StatusOr<TorchFacts> ProbeTorch(const std::vector<std::string>& python) {
  // Without what is preloaded: the question is what the interpreter is like by itself.
  EBB_ASSIGN_OR_RETURN(const ChildResult child,
                       RunChild(WithScript(python, kProbeScript), {{"LD_PRELOAD", ""}}, kLimit));
  TorchFacts facts;
  for (absl::string_view line : absl::StrSplit(child.out, '\n')) {
    if (!absl::ConsumePrefix(&line, "ebbtide-probe ")) continue;
    const std::pair<absl::string_view, absl::string_view> answer =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    Take(answer.first, answer.second, facts);
  }
  if (facts.python.empty()) {
    return absl::UnknownError(absl::StrFormat("\"%s\" does not answer as a python does: %s",
                                              python[0], LastLine(child.err)));
  }
  if (facts.torch_version.empty() && facts.torch_error.empty()) {
    facts.torch_error =
        absl::StrFormat("exit status %d: %s", child.exit_status, LastLine(child.err));
  }
  return facts;
}

absl::Status ProbeBackend(const std::vector<std::string>& python, const std::string& preload) {
  const std::map<std::string, std::string> environment = {
      {"LD_PRELOAD", preload},  {"EBBTIDE_BUDGET", "50%"},  {"EBBTIDE_LOG", "info"},
      {"EBBTIDE_QUIET", ""},    {"EBBTIDE_STRICT", ""},     {"EBBTIDE_STRESS", ""},
      {"EBBTIDE_LOG_FILE", ""}, {"EBBTIDE_STATS_FILE", ""}, {"EBBTIDE_DEVICES", ""},
  };
  EBB_ASSIGN_OR_RETURN(const ChildResult child,
                       RunChild(WithScript(python, kLoadScript), environment, kLimit));
  if (absl::StrContains(child.err, "[ebbtide] managing") && child.exit_status == 0) {
    return absl::OkStatus();
  }
  for (absl::string_view line : absl::StrSplit(child.err, '\n')) {
    const bool from_linker = absl::StartsWith(line, "ERROR: ld.so:");
    if (absl::ConsumePrefix(&line, "[ebbtide] ") || from_linker) {
      return absl::UnavailableError(line);
    }
  }
  if (child.exit_status != 0) {
    return absl::UnavailableError(absl::StrFormat("exit status %d with Ebbtide preloaded: %s",
                                                  child.exit_status, LastLine(child.err)));
  }
  return absl::UnavailableError("torch was imported, but Ebbtide did not notice it");
}

}  // namespace ebbtide
