// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

// The form of every refusal: the value, what is wrong with it, what is allowed.
absl::Status Refuse(absl::string_view value, absl::string_view why, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" %s; allowed is %s", value, why, allowed));
}

constexpr absl::string_view kAllowedFlag = "1, true, yes, on or 0, false, no, off";

absl::Status ParseFlag(absl::string_view value, bool& flag) {
  for (absl::string_view yes : {"1", "true", "yes", "on"}) {
    if (absl::EqualsIgnoreCase(value, yes)) return flag = true, absl::OkStatus();
  }
  for (absl::string_view no : {"0", "false", "no", "off"}) {
    if (absl::EqualsIgnoreCase(value, no)) return flag = false, absl::OkStatus();
  }
  return Refuse(value, "means neither yes nor no", kAllowedFlag);
}

absl::Status ParseBudgetOption(absl::string_view value, Options& options) {
  EBB_ASSIGN_OR_RETURN(options.budget, ParseBudget(value));
  return absl::OkStatus();
}

constexpr absl::string_view kAllowedDevices = "cpu";

absl::Status ParseDevices(absl::string_view value, Options& options) {
  std::vector<std::string> devices;
  for (absl::string_view part : absl::StrSplit(value, ',')) {
    const std::string device = absl::AsciiStrToLower(absl::StripAsciiWhitespace(part));
    if (absl::StartsWith(device, "cuda")) {
      return Refuse(value, "names CUDA, which is not managed yet", kAllowedDevices);
    }
    if (device != "cpu") return Refuse(value, "is not a list of devices", kAllowedDevices);
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  options.devices = std::move(devices);
  return absl::OkStatus();
}

constexpr absl::string_view kAllowedPolicies = "ebb, dtr-eq, lru or size";

absl::Status ParsePolicy(absl::string_view value, Options& options) {
  for (absl::string_view name : {"ebb", "dtr-eq", "lru", "size"}) {
    if (value == name) return options.policy = std::string(name), absl::OkStatus();
  }
  return Refuse(value, "is not a policy", kAllowedPolicies);
}

absl::Status ParseMinBytes(absl::string_view value, Options& options) {
  EBB_ASSIGN_OR_RETURN(options.min_bytes, ParseBytes(value));
  return absl::OkStatus();
}

absl::Status ParseVerify(absl::string_view value, Options& options) {
  return ParseFlag(value, options.verify);
}

absl::Status ParseCheck(absl::string_view value, Options& options) {
  return ParseFlag(value, options.check);
}

absl::Status ParseStrict(absl::string_view value, Options& options) {
  return ParseFlag(value, options.strict);
}

absl::Status ParseQuiet(absl::string_view value, Options& options) {
  return ParseFlag(value, options.quiet);
}

constexpr absl::string_view kAllowedLevels = "warn, info or debug";

absl::Status ParseLog(absl::string_view value, Options& options) {
  if (value == "warn") return options.log = LogLevel::kWarn, absl::OkStatus();
  if (value == "info") return options.log = LogLevel::kInfo, absl::OkStatus();
  if (value == "debug") return options.log = LogLevel::kDebug, absl::OkStatus();
  return Refuse(value, "is not a level", kAllowedLevels);
}

constexpr absl::string_view kAllowedPath = "the path of a file in a folder that exists";

absl::Status ParsePath(absl::string_view value, std::string& path) {
  if (absl::EndsWith(value, "/")) return Refuse(value, "is a folder", kAllowedPath);
  path = std::string(value);
  return absl::OkStatus();
}

absl::Status ParseLogFile(absl::string_view value, Options& options) {
  return ParsePath(value, options.log_file);
}

absl::Status ParseStatsFile(absl::string_view value, Options& options) {
  return ParsePath(value, options.stats_file);
}

absl::Status ParseSnapshotFile(absl::string_view value, Options& options) {
  return ParsePath(value, options.snapshot_file);
}

constexpr absl::string_view kAllowedStress =
    "evict-all, or evict-random:SEED:PROBABILITY such as evict-random:7:0.5 (SEED a whole number, "
    "PROBABILITY from 0 to 1)";

absl::Status ParseStress(absl::string_view value, Options& options) {
  if (value == "evict-all") {
    options.stress = {.kind = Stress::Kind::kEvictAll};
    return absl::OkStatus();
  }
  Stress stress = {.kind = Stress::Kind::kEvictRandom};
  const std::vector<absl::string_view> parts = absl::StrSplit(value, ':');
  const bool valid = parts.size() == 3 && parts[0] == "evict-random" &&
                     absl::SimpleAtoi(parts[1], &stress.seed) &&
                     absl::SimpleAtod(parts[2], &stress.probability) && stress.probability >= 0 &&
                     stress.probability <= 1;
  if (!valid) return Refuse(value, "is not a kind of stress", kAllowedStress);
  options.stress = stress;
  return absl::OkStatus();
}

constexpr OptionSpec kTable[] = {
    {"budget", OptionSpec::Kind::kValue, "BYTES|SHARE%", "none: observe only",
     "limit on the memory that tensors hold on each device",
     "an amount above zero such as 8GiB, 1.5g, 512m or 1073741824, or a share such as 60%",
     "A hard limit, cached and rounded bytes included. A share is of the device's memory; for the "
     "CPU that is what the machine or its control group allows. KiB, MiB, GiB, TiB and k, m, g, t "
     "are powers of two; KB, MB, GB, TB are powers of ten. Without a budget Ebbtide only observes "
     "how much the program wants, and evicts nothing.",
     ParseBudgetOption},
    {"devices", OptionSpec::Kind::kValue, "LIST", "cpu", "devices whose tensors are managed",
     kAllowedDevices, "A list with commas. The budget holds for each device by itself.",
     ParseDevices},
    {"policy", OptionSpec::Kind::kValue, "NAME", "ebb", "how victims are chosen", kAllowedPolicies,
     "`ebb` weighs all that a rebuild of a tensor would have to run now against its size and the "
     "time since its last use. `dtr-eq` (DTR's estimate of that cost), `lru` (what was not used "
     "for longest) and `size` (what is largest) are there to compare with.",
     ParsePolicy},
    {"min-bytes", OptionSpec::Kind::kValue, "BYTES", "16KiB", "smallest storage that is evicted",
     "an amount such as 16KiB, 1m or 0",
     "Smaller storages stay where they are: evicting them costs more than they hold. They still "
     "count towards the budget.",
     ParseMinBytes},
    {"verify", OptionSpec::Kind::kFlag, "", "no", "check that what is rebuilt is what was evicted",
     kAllowedFlag,
     "Hashes a tensor when it leaves and when it returns, and stops the program with the "
     "operator's name if the bits differ. Slow; for finding operators that are not reproducible.",
     ParseVerify},
    {"check", OptionSpec::Kind::kFlag, "", "no", "find writes past a tensor, and to freed memory",
     kAllowedFlag,
     "Puts a red zone before and after each block of memory, fills freed blocks with a poison and "
     "lets them wait before they are used again, and stops the program when one of these was "
     "written over: with the block's size, what was written where, and the stacks on which it was "
     "allocated, freed and found out. It is noticed when the block is freed, when its wait ends, "
     "or "
     "at exit. Sizes are those of blocks, which hold 64 bytes more than the tensor. All of it "
     "counts "
     "towards the budget; blocks stop waiting before anything is evicted. Slow; for finding custom "
     "operators that write where they should not.",
     ParseCheck},
    {"strict", OptionSpec::Kind::kFlag, "", "no", "refuse to run a program that cannot be managed",
     kAllowedFlag,
     "By default a program runs unmanaged, after one line that says so, when its torch is not "
     "supported, a library is missing or an option is wrong.",
     ParseStrict},
    {"log", OptionSpec::Kind::kValue, "LEVEL", "warn", "what is said on stderr: warn, info, debug",
     kAllowedLevels, "`info` adds one line for each device when its management starts.", ParseLog},
    {"log-file", OptionSpec::Kind::kPath, "PATH", "none", "a copy of all that is said",
     kAllowedPath,
     "Lines are appended, with the time (UTC) and the process. `%p` in the name becomes the "
     "process id, `%r` the rank in a distributed job (the variable RANK, else 0), `%%` a percent "
     "sign.",
     ParseLogFile},
    {"stats-file", OptionSpec::Kind::kPath, "PATH", "none", "statistics as JSON, written at exit",
     kAllowedPath,
     "Also written after an uncaught exception. `%p`, `%r` and `%%` as in the name of the log "
     "file: use one of them when several processes of the program use torch.",
     ParseStatsFile},
    {"snapshot-file", OptionSpec::Kind::kPath, "PATH", "none",
     "what lies where in memory, for PyTorch's viewer", kAllowedPath,
     "Written when memory runs out for the first time, else at exit: all blocks, and the last "
     "200,000 allocations and frees. pytorch.org/memory_viz opens the file; with a name that ends "
     "in .csv it is the log of allocations that RMM's tools replay. `%p`, `%r` and `%%` as in the "
     "name of the log file.",
     ParseSnapshotFile},
    {"quiet", OptionSpec::Kind::kFlag, "", "no", "no report at exit and no warnings", kAllowedFlag,
     "Errors still go to stderr, and everything to the log file.", ParseQuiet},
    {"stress", OptionSpec::Kind::kValue, "KIND", "none", "evict without need, for tests",
     kAllowedStress,
     "After every call evicts everything that can be evicted, or a random part of it chosen by a "
     "seed, whatever the budget and the size. Results must not change.",
     ParseStress},
};

}  // namespace

absl::Span<const OptionSpec> OptionTable() { return kTable; }

std::string EnvironmentName(const OptionSpec& spec) {
  return absl::StrCat("EBBTIDE_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(spec.name, {{"-", "_"}})));
}

absl::StatusOr<Options> LoadOptions(GetEnvironment get) {
  Options options;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string name = EnvironmentName(spec);
    const char* value = get(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    if (absl::Status status = spec.parse(value, options); !status.ok()) {
      // One line, whatever the value holds.
      const std::string text = absl::StrReplaceAll(status.message(), {{"\n", "\\n"}});
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", text));
    }
  }
  return options;
}

bool StrictRequested(GetEnvironment get) {
  const char* value = get("EBBTIDE_STRICT");
  if (value == nullptr || *value == '\0') return false;
  bool strict = false;
  return !ParseFlag(value, strict).ok() || strict;
}

}  // namespace ebbtide
