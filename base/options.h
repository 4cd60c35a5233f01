// SPDX-License-Identifier: Apache-2.0
//
// What a user can set, all of it, in one table. The environment variables (EBBTIDE_MIN_BYTES), the
// flags of `ebbtide run` (--min-bytes), its help and docs/options.md are made from the rows of
// OptionTable(), so that they cannot disagree. To add an option: a field in Options, a row in
// options.cc, and the reader that acts on it; then regenerate docs/options.md (see its first
// lines).
//
// An Options object is a plain value that its holder may copy and read on any thread. Loading reads
// the environment through a function of the caller's, so that tests and `ebbtide run` can bring
// their own.

#ifndef EBBTIDE_BASE_OPTIONS_H_
#define EBBTIDE_BASE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/budget.h"
#include "base/bytes.h"
#include "base/log.h"

namespace ebbtide {

// Evictions that no budget asked for, to test that they change nothing.
struct Stress {
  enum class Kind { kNone, kEvictAll, kEvictRandom };

  Kind kind = Kind::kNone;
  uint64_t seed = 0;       // For kEvictRandom: chooses the victims.
  double probability = 0;  // For kEvictRandom: of each evictable storage, after each call; 0 to 1.

  friend bool operator==(const Stress&, const Stress&) = default;
};

// The settings in force. A default-constructed object holds what applies when nothing is set.
struct Options {
  std::optional<Budget> budget = {};  // Absent: observe only, evict nothing.
  std::vector<std::string> devices = {"cpu"};
  std::string policy = "ebb";
  Bytes min_bytes = Bytes(16 << 10);  // Smaller storages are never evicted.
  bool verify = false;
  bool check = false;
  bool strict = false;
  LogLevel log = LogLevel::kWarn;
  std::string log_file = {};       // Empty: none. May hold %p and %r.
  std::string stats_file = {};     // Empty: none. May hold %p and %r.
  std::string snapshot_file = {};  // Empty: none. May hold %p and %r.
  bool quiet = false;
  Stress stress = {};
};

// One row of the table.
struct OptionSpec {
  enum class Kind {
    kValue,  // --name VALUE
    kPath,   // The same, and relative to the folder where the program starts.
    kFlag,   // --name, or a value that means yes or no.
  };

  absl::string_view name;  // As on the command line without dashes: "min-bytes".
  Kind kind;
  absl::string_view value_name;    // What stands for the value in the help: "BYTES".
  absl::string_view default_text;  // For people: "16KiB", "none: observe only".
  absl::string_view summary;       // One line, for the help.
  absl::string_view allowed;       // What a value may be, for error messages and the page.
  absl::string_view details;       // Further sentences for docs/options.md.
  absl::Status (*parse)(absl::string_view value, Options& options);
};

// Every option, in the order in which the help and the page show them.
absl::Span<const OptionSpec> OptionTable();

// The option's environment variable: "EBBTIDE_MIN_BYTES" for "min-bytes".
std::string EnvironmentName(const OptionSpec& spec);

// Looks a variable up as getenv does: null if it is not set.
using GetEnvironment = absl::FunctionRef<const char*(const char* name)>;

// Reads every option of the table. A variable that is not set or empty leaves the default. The
// first bad value ends it with an InvalidArgument error of one line that names the variable, the
// value and what is allowed.
absl::StatusOr<Options> LoadOptions(GetEnvironment get);

// Whether EBBTIDE_STRICT asks that the program be refused rather than run unmanaged. To be asked
// when LoadOptions failed; a bad value of this variable itself counts as yes.
bool StrictRequested(GetEnvironment get);

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_OPTIONS_H_
