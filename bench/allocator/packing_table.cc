// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/packing_table.h"

#include <time.h>

#include <algorithm>
#include <ostream>

#include "absl/strings/str_format.h"
#include "allocator/lifetime_packer.h"

namespace ebbtide::bench {
namespace {

// Of this thread: on a busy machine less disturbed than the time that passes.
double ProcessorMs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void PrintPacking(const std::vector<MinimallocProblem>& problems, int repeats, std::ostream& out,
                  nlohmann::ordered_json* json) {
  out << "packing\nproblem  buffers      height    capacity  % of capacity       ms  fits\n";
  for (const MinimallocProblem& problem : problems) {
    const int64_t capacity =
        problem.capacity > 0 ? problem.capacity : MaxLiveBytes(problem.lifetimes);
    Packing packing;
    std::vector<double> ms;
    for (int i = 0; i < repeats; ++i) {
      const double start = ProcessorMs();
      packing = PackLifetimes(problem.lifetimes, {.capacity = capacity});
      ms.push_back(ProcessorMs() - start);
    }
    std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
    const double median = ms[ms.size() / 2];
    out << absl::StrFormat("%-7s  %7d  %10d  %10d  %13.2f  %7.1f  %s\n", problem.name,
                           problem.lifetimes.size(), packing.height, capacity,
                           100.0 * packing.height / capacity, median,
                           packing.height <= capacity ? "yes" : "no");
    (*json)["packing"][problem.name] = {
        {"height", packing.height}, {"capacity", capacity}, {"ms", median}};
  }
}

}  // namespace ebbtide::bench
