// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/exit_report.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/version.h"

namespace ebbtide {
namespace {

// Highest resident size of the process so far; zero if the kernel does not say.
Bytes PeakResident() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    int64_t kibibytes = 0;
    status >> kibibytes;
    return Bytes(kibibytes << 10);
  }
  return Bytes(0);
}

nlohmann::ordered_json LevelJson(const Level& level) {
  return {{"current", level.current.count()},
          {"peak", level.peak.count()},
          {"allocated", level.allocated.count()},
          {"freed", level.freed.count()}};
}

nlohmann::ordered_json UsageJson(const Usage& usage) {
  return {{"live_bytes", LevelJson(usage.live)},
          {"asked_bytes", LevelJson(usage.asked)},
          {"awaiting_bytes", LevelJson(usage.awaiting)},
          {"cached_bytes", LevelJson(usage.cached)},
          {"held_bytes", LevelJson(usage.held)},
          {"allocations", usage.allocations},
          {"frees", usage.frees}};
}

RuntimeStats RuntimeStatsOf(const Manager& manager) {
  if (!manager.manages()) return {};
  return const_cast<Manager&>(manager).runtime().stats();
}

}  // namespace

std::string StatisticsJson(const Manager& manager, const ProcessFacts& facts) {
  const AllocatorStats memory = manager.allocator().stats();
  const RuntimeStats runtime = RuntimeStatsOf(manager);
  const RematerializerStats& work = runtime.rematerializer;
  nlohmann::ordered_json device;
  device["device"] = "cpu";
  if (memory.budget == Bytes::Max()) {
    device["budget_bytes"] = nullptr;
  } else {
    device["budget_bytes"] = memory.budget.count();
  }
  device["peak_held_bytes"] = memory.peak_held.count();
  device["peak_wanted_bytes"] = manager.wanted().peak().count();
  device["evictions"] = work.evictions;
  device["rebuilds"] = work.rebuilds;
  device["recomputed_calls"] = work.recomputed_calls;
  device["recompute_seconds"] = ToSeconds(work.recompute_time);
  device["evicted_bytes"] = work.evicted_bytes.count();
  device["out_of_memory_errors"] = manager.out_of_memory_errors();
  device["largest_pinned_bytes"] = runtime.largest_pinned.count();
  device["escaped_bytes"] = manager.escaped().peak().count();
  device["retained_bytes"] = runtime.retained_bytes.count();
  device["recorded_calls"] = runtime.recorded_calls;
  device["verified_rebuilds"] = work.verified;
  device["memory"] = {{"small", UsageJson(memory.small)}, {"large", UsageJson(memory.large)}};
  nlohmann::ordered_json root;
  root["version"] = kVersion;
  root["torch"] = facts.torch_version;
  root["pid"] = getpid();
  root["devices"] = {device};
  root["calls"] = manager.calls();
  root["wall_seconds"] = ToSeconds(MonotonicNow() - facts.started);
  return root.dump(2) + "\n";
}

std::string Summary(const Manager& manager, const ProcessFacts& facts) {
  const AllocatorStats memory = manager.allocator().stats();
  const RuntimeStats runtime = RuntimeStatsOf(manager);
  const RematerializerStats& work = runtime.rematerializer;
  const double wall = ToSeconds(MonotonicNow() - facts.started);
  std::vector<std::string> lines;
  const std::string budget = memory.budget == Bytes::Max() ? "none" : FormatBytes(memory.budget);
  lines.push_back(absl::StrFormat("cpu: peak wanted %s, peak held %s, budget %s",
                                  FormatBytes(manager.wanted().peak()),
                                  FormatBytes(memory.peak_held), budget));
  if (manager.manages()) {
    const double seconds = ToSeconds(work.recompute_time);
    lines.push_back(absl::StrFormat(
        "evicted %d times (%s), rebuilt %d times by %d calls run again: "
        "%.2f s, %.1f %% of %.2f s",
        work.evictions, FormatBytes(work.evicted_bytes), work.rebuilds, work.recomputed_calls,
        seconds, wall > 0 ? 100 * seconds / wall : 0.0, wall));
    lines.push_back(absl::StrFormat(
        "most pinned at once: %s by running operators; %s kept because "
        "their address was given away",
        FormatBytes(runtime.largest_pinned), FormatBytes(manager.escaped().peak())));
  }
  if (manager.out_of_memory_errors() > 0) {
    lines.push_back(absl::StrFormat("out of memory: %d times", manager.out_of_memory_errors()));
  }
  lines.push_back(
      absl::StrFormat("outside of the budget (interpreter, libraries, scratch memory): "
                      "%s of %s resident at the peak",
                      FormatBytes(std::max(Bytes(0), PeakResident() - memory.peak_held)),
                      FormatBytes(PeakResident())));
  return absl::StrJoin(lines, "\n");
}

void WriteExitReport(Manager& manager, const ProcessFacts& facts) {
  manager.allocator().CheckBlocks();  // those of tensors that live to the end
  const Options& options = manager.options();
  if (!options.stats_file.empty()) {
    const std::string path = Manager::OutputPath(options.stats_file);
    std::ofstream file(path, std::ios::trunc);
    file << StatisticsJson(manager, facts);
    file.close();
    if (!file) EBB_WARN("the statistics file %s could not be written", path);
  }
  manager.WriteSnapshot();
  if (!manager.in_forked_child() && manager.wanted().peak() > Bytes(0)) {
    LogReport(Summary(manager, facts));
  }
}

}  // namespace ebbtide
