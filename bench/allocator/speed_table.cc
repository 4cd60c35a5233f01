// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/speed_table.h"

#include <algorithm>
#include <map>
#include <ostream>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "bench/allocator/speed_programs.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

constexpr Nanos kWorkerLimit = std::chrono::seconds(300);

struct Known {
  const char* name;
  const char* library;
  const char* package;  // of Debian
};

constexpr Known kKnown[] = {
    {"jemalloc", "libjemalloc.so.2", "libjemalloc2"},
    {"mimalloc", "libmimalloc.so.2", "libmimalloc2.0"},
    {"tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"},
};

constexpr const char* kPrograms[] = {"hit", "traces", "rmm", "cub"};

// What a worker tells, and how it is shown. The tail of one thread is the allocator's own; that of
// more threads than processors is the scheduler's as well.
struct Number {
  const char* key;
  const char* title;
  int decimals;
};

constexpr Number kNumbers[] = {
    {"cpu_ns", "processor time, ns a call", 1},
    {"calls_per_us", "calls a microsecond, all threads", 2},
    {"p50", "median, ns", 0},
    {"p999", "p99.9, ns", 0},
};

// The linker complains of what it cannot preload, and goes on without.
bool CanPreload(const char* library) {
  const absl::StatusOr<ChildResult> child =
      RunChild({"true"}, {{"LD_PRELOAD", library}}, std::chrono::seconds(10));
  return child.ok() && !absl::StrContains(child->err, "cannot be preloaded");
}

using Values = std::map<std::string, std::vector<double>>;  // by number, of all rounds

absl::Status MeasureOnce(const SpeedOptions& options, const std::string& program, int threads,
                         const PreloadedAllocator& allocator, Values* values) {
  const bool ours = allocator.name == "ebbtide";
  EBB_ASSIGN_OR_RETURN(
      const ChildResult child,
      RunChild({options.worker, "--allocator", ours ? "ebbtide" : "malloc", "--program", program,
                "--threads", absl::StrCat(threads), "--seconds", absl::StrCat(options.seconds),
                "--traces", options.traces},
               // tcmalloc reports every request of a gigabyte otherwise.
               {{"LD_PRELOAD", allocator.library},
                {"TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD", "1000000000000"}},
               kWorkerLimit));
  const nlohmann::json result = nlohmann::json::parse(child.out, nullptr, false);
  if (child.exit_status != 0 || !result.is_object()) {
    return absl::InternalError(
        absl::StrFormat("speed_worker for %s, program %s, %d threads: status %d: %s",
                        allocator.name, program, threads, child.exit_status, child.err));
  }
  if (!absl::StrContains(result["malloc"].get<std::string>(), allocator.library)) {
    return absl::InternalError(absl::StrCat(allocator.library, " was not preloaded"));
  }
  for (const Number& number : kNumbers) {
    (*values)[number.key].push_back(result[number.key].get<double>());
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// All rounds of one program: {ALLOCATOR: {THREADS: {NUMBER: median}}}.
absl::StatusOr<nlohmann::ordered_json> MeasureProgram(
    const SpeedOptions& options, const std::string& program,
    const std::vector<PreloadedAllocator>& allocators) {
  std::map<std::pair<std::string, int>, Values> values;
  for (int round = 0; round < options.rounds; ++round) {
    for (const int threads : options.threads) {
      for (size_t i = 0; i < allocators.size(); ++i) {
        // Each round begins with another one, so that nobody always follows the same neighbour.
        const PreloadedAllocator& allocator = allocators[(i + round) % allocators.size()];
        EBB_RETURN_IF_ERROR(
            MeasureOnce(options, program, threads, allocator, &values[{allocator.name, threads}]));
      }
    }
  }
  nlohmann::ordered_json measured;
  for (const PreloadedAllocator& allocator : allocators) {
    for (const int threads : options.threads) {
      for (const auto& [number, rounds] : values[{allocator.name, threads}]) {
        measured[allocator.name][absl::StrCat(threads)][number] = Median(rounds);
      }
    }
  }
  return measured;
}

void PrintProgram(const std::string& program, const nlohmann::ordered_json& measured,
                  const std::vector<int>& threads, std::ostream& out) {
  for (const Number& number : kNumbers) {
    out << absl::StrFormat("%-8s%-34s", program, number.title);
    for (const int count : threads) out << absl::StrFormat(" %9d", count);
    out << '\n';
    for (const auto& [allocator, by_threads] : measured.items()) {
      out << absl::StrFormat("        %-34s", allocator);
      for (const int count : threads) {
        const double value = by_threads[absl::StrCat(count)][number.key].get<double>();
        out << absl::StrFormat(" %9.*f", number.decimals, value);
      }
      out << '\n';
    }
  }
  out << '\n' << std::flush;
}

}  // namespace

std::vector<PreloadedAllocator> FindPreloadable(std::ostream& out) {
  std::vector<PreloadedAllocator> found;
  for (const Known& known : kKnown) {
    if (CanPreload(known.library)) {
      found.push_back({known.name, known.library});
    } else {
      out << known.name << ": left out, the linker finds no " << known.library << " (package "
          << known.package << ")\n";
    }
  }
  return found;
}

absl::Status PrintSpeed(const SpeedOptions& options,
                        const std::vector<PreloadedAllocator>& preloadable, std::ostream& out,
                        nlohmann::ordered_json* json) {
  std::vector<PreloadedAllocator> allocators = {{"ebbtide", ""}, {"glibc", ""}};
  allocators.insert(allocators.end(), preloadable.begin(), preloadable.end());
  out << "speed, by number of threads\n";
  for (const std::string program : kPrograms) {
    if (options.traces.empty() && NeedsTraces(program)) {
      out << program << ": left out, it needs the traces\n";
      continue;
    }
    EBB_ASSIGN_OR_RETURN(const nlohmann::ordered_json measured,
                         MeasureProgram(options, program, allocators));
    PrintProgram(program, measured, options.threads, out);
    (*json)["speed"][program] = measured;
    if (program != "hit") continue;
    for (const auto& [allocator, by_threads] : measured.items()) {
      for (const auto& [threads, numbers] : by_threads.items()) {
        (*json)["hit_ns"][allocator][threads] = numbers["cpu_ns"];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace ebbtide::bench
