// SPDX-License-Identifier: Apache-2.0
//
// Packs problems in minimalloc's format (CSV with the columns id,lower,upper,size, `upper` being
// one past the last instant) and prints one line for each:
//
//     packer_bench --capacity=1048576 A.csv B.csv ...

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "allocator/lifetime_packer.h"

namespace ebbtide {
namespace {

// Of this process; on a busy machine less disturbed than the time that passes.
double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

bool ReadProblem(const std::string& path, std::vector<Lifetime>* lifetimes) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto column = [header = std::vector<std::string>(absl::StrSplit(
                           absl::StripSuffix(line, "\r"), ','))](const std::string& name) {
    return static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const size_t columns[] = {column("lower"), column("upper"), column("size")};
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = absl::StrSplit(absl::StripSuffix(line, "\r"), ',');
    int64_t values[3];
    for (int i = 0; i < 3; ++i) {
      if (columns[i] >= cells.size() || !absl::SimpleAtoi(cells[columns[i]], &values[i]) ||
          values[i] < 0) {
        return false;
      }
    }
    lifetimes->push_back({values[0], values[1], values[2]});
  }
  return true;
}

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
    std::vector<Lifetime> lifetimes;
    if (!ReadProblem(path, &lifetimes)) {
      std::cerr << path << ": not a file with the columns lower,upper,size\n";
      return 1;
    }
    const double start = CpuMs();
    const Packing packing = PackLifetimes(lifetimes, options);
    const double ms = CpuMs() - start;
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
}  // namespace ebbtide

int main(int argc, char** argv) { return ebbtide::Main(argc, argv); }
