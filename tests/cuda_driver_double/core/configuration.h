// SPDX-License-Identifier: Apache-2.0
//
// What a test may choose about the double: how many devices of which size there are, when their
// work is done, and which calls fail, are slow, or break the device. Each setting has a name; the
// environment variable is EBBTIDE_DOUBLE_ and that name in capitals. README.md lists them.
//
// A plain value: copies are independent, no thread rules of its own. To add a setting: a field
// here, a row of the table in configuration.cc, a line in README.md.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CONFIGURATION_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CONFIGURATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

inline constexpr int kDevicesMax = 16;

// "NAME:N", "NAME:N+" or either with "=CODE": which calls a rule means.
struct CallRule {
  std::string name;    // of the entry point without _v2; "*" is any
  int64_t number = 0;  // 1 is the next call
  bool for_ever = false;
  std::optional<Result> result = std::nullopt;  // nothing: what is usual for the rule's purpose

  // Whether call `count` (1 is the first) of those that the rule means is hit.
  bool Hits(int64_t count) const { return count == number || (for_ever && count > number); }
};

// "NAME:MICROSECONDS": how long a call takes at least.
struct CallLatency {
  std::string name;
  int64_t microseconds = 0;
};

struct Configuration {
  int devices = 1;
  size_t capacity_bytes = size_t{8} << 30;  // of each device
  size_t granularity_bytes = size_t{2} << 20;
  int driver_version = 13000;
  // Work on streams is done late, in an order drawn from this seed; without one, at once.
  std::optional<uint64_t> async_seed;
  // A hazard aborts the process.
  bool strict = false;
  // The processor can read and write device memory that some device may access.
  bool host_access = true;
  // Freeing memory first waits for all that is queued, as drivers do without promising it.
  bool free_waits = true;
  // Handles of destroyed streams and events are given again, as drivers do.
  bool reuse_handles = false;
  std::vector<CallRule> failures;
  std::vector<CallRule> breaks;  // the device of the call fails for good after it
  std::vector<CallLatency> latencies;

  // Sets what `name` stands for. An empty text sets the default again.
  // Errors: InvalidArgument, with the name, the text and what is allowed.
  absl::Status Set(absl::string_view name, absl::string_view text);

  // The defaults with what the environment says.
  static absl::StatusOr<Configuration> FromEnvironment();
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CONFIGURATION_H_
