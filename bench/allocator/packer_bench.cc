// SPDX-License-Identifier: Apache-2.0
//
// Packs problems in minimalloc's format (CSV with the columns id,lower,upper,size, `upper` being
// one past the last instant) and prints one line for each:
//
//     packer_bench --capacity=1048576 A.csv B.csv ...

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "allocator/lifetime_packer.h"
#include "base/clock.h"
#include "bench/allocator/minimalloc_problem.h"

namespace ebbtide::bench {
namespace {

int Main(int argc, char** argv) {
  PackOptions options;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    int64_t* number = nullptr;
    if (absl::ConsumePrefix(&argument, "--capacity=")) {
      number = &options.capacity;
    } else if (absl::ConsumePrefix(&argument, "--steps=")) {
      number = &options.max_steps;
    } else {
      paths.emplace_back(argument);
    }
    if (number != nullptr && (!absl::SimpleAtoi(argument, number) || *number < 1)) paths.clear();
  }
  if (paths.empty()) {
    std::cerr << "usage: packer_bench [--capacity=BYTES] [--steps=N] FILE.csv ...\n";
    return 2;
  }
  std::cout << "buffers    max live      height  % of capacity      ms  fits  problem\n";
  for (const std::string& path : paths) {
    const absl::StatusOr<MinimallocProblem> problem = ReadMinimallocProblem(path);
    if (!problem.ok()) {
      std::cerr << problem.status().message() << '\n';
      return 1;
    }
    const std::vector<Lifetime>& lifetimes = problem->lifetimes;
    const Nanos start = MonotonicNow();
    const Packing packing = PackLifetimes(lifetimes, options);
    const double ms = 1e3 * ToSeconds(MonotonicNow() - start);
    // Without a capacity, the lower bound stands in for it.
    const int64_t live = MaxLiveBytes(lifetimes);
    const int64_t capacity = std::max<int64_t>(1, options.capacity > 0 ? options.capacity : live);
    std::cout << absl::StrFormat("%7d  %10d  %10d  %13.2f  %6.1f  %4s  %s\n", lifetimes.size(),
                                 live, packing.height, 100.0 * packing.height / capacity, ms,
                                 packing.height <= capacity ? "yes" : "no", path);
  }
  return 0;
}

}  // namespace
}  // namespace ebbtide::bench

int main(int argc, char** argv) { return ebbtide::bench::Main(argc, argv); }
