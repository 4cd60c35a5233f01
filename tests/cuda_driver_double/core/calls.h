// SPDX-License-Identifier: Apache-2.0
//
// Counts the calls of each entry point by name, and says which of them the configuration wants to
// fail, to break the device, or to take long.
//
// Threads: the caller serialises all calls. Owns nothing but its counts.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CALLS_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CALLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/cuda_driver_double/core/configuration.h"
#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

// "cuMemAlloc" of "cuMemAlloc_v2".
absl::string_view WithoutVersion(absl::string_view entry_point);

class Calls {
 public:
  struct Decision {
    Result result = Result::kSuccess;  // what the call must fail with, if it must
    Result breaks = Result::kSuccess;  // what the device fails with for good after the call
    int64_t microseconds = 0;          // how long it takes at least
  };

  // Rules count from now on: call 1 is the next one that they mean.
  void SetFailures(std::vector<CallRule> rules) { failures_.Set(std::move(rules)); }
  void SetBreaks(std::vector<CallRule> rules) { breaks_.Set(std::move(rules)); }
  void SetLatencies(std::vector<CallLatency> latencies) { latencies_ = std::move(latencies); }

  // Counts one call.
  Decision Count(absl::string_view entry_point);

  // How often it was called, with or without _v2 in the name; "*" is all of them.
  int64_t count(absl::string_view name) const;
  void ResetCounts() { counts_.clear(); }

 private:
  class Rules {
   public:
    void Set(std::vector<CallRule> rules);
    // The first rule that this call hits, or null. Counts it for each rule that means it.
    const CallRule* Count(absl::string_view name);

   private:
    std::vector<CallRule> rules_;
    std::vector<int64_t> seen_;  // a count a rule
  };

  std::map<std::string, int64_t, std::less<>> counts_;
  Rules failures_;
  Rules breaks_;
  std::vector<CallLatency> latencies_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CALLS_H_
