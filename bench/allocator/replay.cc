// SPDX-License-Identifier: Apache-2.0
//
// Replays recorded allocations on the caching allocator over a simulated device, and prints a line
// for each file: what the program had live at its peak, what the allocator held for it at its own,
// the difference as a share (waste = 1 - live / held), and how often the device was called.
//
//     replay trace.csv rmm_log.csv snapshot.pickle ...
//
// It reads CSV with the columns seq,op,id,bytes,stream,t_us, logs of RMM, and snapshots of PyTorch.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "allocator/allocation_trace.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/trace_replay.h"

namespace ebbtide {
namespace {

// More than any trace needs: the budget is the limit, if there is one.
constexpr Bytes kCapacity(int64_t{1} << 44);

struct Settings {
  Bytes granularity;
  Bytes budget;
  bool whole = false;
};

void ReplayFile(const AllocationTrace& trace, const Settings& settings, const std::string& name) {
  SimulatedDevice device({.capacity = kCapacity,
                          .granularity = settings.granularity,
                          .partial_decommit = !settings.whole});
  CachingAllocator allocator(&device, {.budget = settings.budget});
  const ReplayResult result = Replay(
      trace, [&](const AllocationEvent& event) { return allocator.Allocate(event.bytes); },
      [&](void* block, const AllocationEvent&) { allocator.Free(block); });
  const Bytes held = allocator.stats().peak_held;
  const auto live = static_cast<double>(result.peak_live.count());
  const double waste = held > Bytes(0) ? 1 - live / static_cast<double>(held.count()) : 0;
  std::cout << absl::StrFormat(
      "%8d  %11.1f  %11.1f  %6.2f  %6d  %12.2f  %6d  %s\n", trace.events.size(), live / (1 << 20),
      static_cast<double>(held.count()) / (1 << 20), 100 * waste, device.calls(),
      1000.0 * static_cast<double>(device.calls()) /
          static_cast<double>(std::max<int64_t>(trace.allocations, 1)),
      result.failures, name);
}

int Main(int argc, char** argv) {
  CLI::App app("Replays recorded allocations on the caching allocator over a simulated device.");
  std::string granularity = "2MiB";
  std::string budget;
  Settings settings;
  std::vector<std::string> files;
  app.add_option("--granularity", granularity, "the device's unit of memory")
      ->capture_default_str();
  app.add_option("--budget", budget, "the most bytes ever held, for example 8GiB; none by default");
  app.add_flag("--whole", settings.whole, "a device that takes memory back only in whole segments");
  app.add_option("files", files, "traces, RMM logs, PyTorch snapshots")->required();
  CLI11_PARSE(app, argc, argv);

  const absl::StatusOr<Bytes> unit = ParseBytes(granularity);
  const absl::StatusOr<Bytes> limit = budget.empty() ? Bytes::Max() : ParseBytes(budget);
  for (const absl::Status& status : {unit.status(), limit.status()}) {
    if (status.ok()) continue;
    std::cerr << status.message() << "\n";
    return 2;
  }
  settings.granularity = *unit;
  settings.budget = *limit;
  const int64_t count = unit->count();
  if (count < 4096 || (count & (count - 1)) != 0) {
    std::cerr << "--granularity must be a power of two of at least 4 KiB\n";
    return 2;
  }
  std::cout << "  events     live MiB     held MiB  waste%   calls  per 1000 req  failed  file\n";
  for (const std::string& file : files) {
    const absl::StatusOr<AllocationTrace> trace = ReadTraceFile(file);
    if (!trace.ok()) {
      std::cerr << file << ": " << trace.status().message() << "\n";
      return 1;
    }
    ReplayFile(*trace, settings, file.substr(file.rfind('/') + 1));
  }
  return 0;
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) { return ebbtide::Main(argc, argv); }
