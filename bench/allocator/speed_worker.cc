// SPDX-License-Identifier: Apache-2.0
//
// Times one allocator with one program in threads of its own, and prints one line of JSON. A
// process does this once, because malloc of the C library is whatever was preloaded:
//
//     LD_PRELOAD=libjemalloc.so.2 speed_worker --allocator malloc --program cub --threads 4
//
// Every thread runs its program once to fill the caches. Then all of them run it for a while under
// the clock, and for as long again with the clock read around every seventh call, because reading
// it costs as much as a call. Blocks are aligned as tensors are, to 64 bytes, and not touched.

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "allocator/caching_allocator.h"
#include "allocator/host_memory.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/allocator/speed_programs.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {
namespace {

constexpr size_t kOpsBetweenLooks = 256;
constexpr size_t kOpsPerSample = 7;
constexpr size_t kMaxSamples = size_t{1} << 20;

struct Ours {
  static CachingAllocator& Shared() {
    static HostMemory memory;
    static CachingAllocator allocator(&memory);
    return allocator;
  }
  static void* Get(int64_t bytes) {
    const absl::StatusOr<void*> block = Shared().Allocate(Bytes(bytes));
    EBB_CHECK(block.ok()) << block.status().ToString();
    return *block;
  }
  static void Put(void* block) { Shared().Free(block); }
};

struct Malloc {
  static void* Get(int64_t bytes) {
    void* block = nullptr;
    EBB_CHECK(posix_memalign(&block, 64, static_cast<size_t>(bytes)) == 0)
        << "malloc has no " << bytes << " bytes";
    return block;
  }
  static void Put(void* block) { free(block); }
};

// One thread's program, and how far it is.
template <typename Source>
class Runner {
 public:
  explicit Runner(SpeedProgram program)
      : program_(std::move(program)), blocks_(program_.slots, nullptr) {}

  void WarmUp() {
    for (const TraceOp& op : program_.prologue) Step(op);
    for (const TraceOp& op : program_.loop) Step(op);
  }

  // Returns the calls made until `deadline`.
  int64_t RunUntil(Nanos deadline) {
    int64_t calls = 0;
    do {
      for (size_t i = 0; i < kOpsBetweenLooks; ++i) Step(Next());
      calls += kOpsBetweenLooks;
    } while (MonotonicNow() < deadline);
    return calls;
  }

  // Appends the nanoseconds of every kOpsPerSample-th call until `deadline`.
  void SampleUntil(Nanos deadline, std::vector<double>* samples) {
    for (Nanos end = Nanos(0); end < deadline && samples->size() < kMaxSamples;) {
      for (size_t i = 1; i < kOpsPerSample; ++i) Step(Next());
      const TraceOp& op = Next();
      const Nanos start = MonotonicNow();
      Step(op);
      end = MonotonicNow();
      samples->push_back(static_cast<double>((end - start).count()));
    }
  }

  void FreeAll() {
    for (void*& block : blocks_) {
      if (block != nullptr) Source::Put(block);
    }
  }

 private:
  const TraceOp& Next() {
    if (at_ == program_.loop.size()) at_ = 0;
    return program_.loop[at_++];
  }

  void Step(const TraceOp& op) {
    void*& block = blocks_[op.slot];
    if (op.bytes > 0) {
      block = Source::Get(op.bytes);
    } else {
      Source::Put(block);
      block = nullptr;
    }
  }

  const SpeedProgram program_;
  std::vector<void*> blocks_;
  size_t at_ = 0;
};

// What the threads have in common. They meet at the barrier before each part.
struct Meeting {
  explicit Meeting(int threads, Nanos each) : barrier(threads), part(each) {}
  std::barrier<> barrier;
  const Nanos part;
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> wall_nanos{0};  // of the slowest thread
};

Nanos ProcessorTime() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanos(now.tv_nsec);
}

template <typename Source>
void RunThread(SpeedProgram program, Meeting* meeting, std::vector<double>* samples,
               Nanos* processor) {
  samples->reserve(kMaxSamples);
  Runner<Source> runner(std::move(program));
  runner.WarmUp();
  meeting->barrier.arrive_and_wait();
  const Nanos processor_start = ProcessorTime();
  const Nanos start = MonotonicNow();
  meeting->calls += runner.RunUntil(start + meeting->part);
  const int64_t wall = (MonotonicNow() - start).count();
  for (int64_t seen = meeting->wall_nanos; wall > seen;) {
    if (meeting->wall_nanos.compare_exchange_weak(seen, wall)) break;
  }
  meeting->barrier.arrive_and_wait();
  *processor = ProcessorTime() - processor_start;
  meeting->barrier.arrive_and_wait();
  runner.SampleUntil(MonotonicNow() + meeting->part, samples);
  meeting->barrier.arrive_and_wait();
  runner.FreeAll();
}

// The value that a share of all values does not exceed.
double Quantile(std::vector<double>* values, double share) {
  const auto at = values->begin() + static_cast<int64_t>(share * (values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

// What two readings of the clock without anything between them say.
double ClockNanos() {
  std::vector<double> readings;
  for (int i = 0; i < 1001; ++i) {
    const Nanos start = MonotonicNow();
    readings.push_back(static_cast<double>((MonotonicNow() - start).count()));
  }
  return Quantile(&readings, 0.5);
}

template <typename Source>
nlohmann::json Measure(std::vector<SpeedProgram> programs, Nanos part) {
  const auto threads = static_cast<int>(programs.size());
  Meeting meeting(threads, part);
  std::vector<std::vector<double>> samples(programs.size());
  std::vector<Nanos> processor(programs.size());
  std::vector<std::thread> running;
  for (size_t i = 0; i < programs.size(); ++i) {
    running.emplace_back(RunThread<Source>, std::move(programs[i]), &meeting, &samples[i],
                         &processor[i]);
  }
  for (std::thread& thread : running) thread.join();
  std::vector<double> all;
  for (const auto& each : samples) all.insert(all.end(), each.begin(), each.end());
  const double clock = ClockNanos();
  const auto calls = static_cast<double>(meeting.calls);
  const auto wall = static_cast<double>(meeting.wall_nanos);
  const int used = std::min<int>(threads, std::max(1U, std::thread::hardware_concurrency()));
  return {{"ns", wall * used / calls},
          {"cpu_ns", static_cast<double>(processor[0].count()) / calls},
          {"calls_per_us", 1e3 * calls / wall},
          {"p50", std::max(0.0, Quantile(&all, 0.5) - clock)},
          {"p999", std::max(0.0, Quantile(&all, 0.999) - clock)}};
}

// The file that `malloc` comes from: what was preloaded, if it was.
std::string MallocLibrary() {
  Dl_info info;
  void* function = dlsym(RTLD_DEFAULT, "malloc");
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

int Main(int argc, char** argv) {
  std::string allocator = "ebbtide";
  std::string program = "hit";
  std::string traces_path;
  int threads = 1;
  double seconds = 0.2;
  CLI::App app("Times one allocator with one program.");
  app.add_option("--allocator", allocator)->check(CLI::IsMember({"ebbtide", "malloc"}));
  app.add_option("--program", program)->check(CLI::IsMember({"hit", "traces", "rmm", "cub"}));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--seconds", seconds, "of each of the two parts")->check(CLI::PositiveNumber);
  app.add_option("--traces", traces_path, "folder or archive, for hit and traces");
  CLI11_PARSE(app, argc, argv);

  std::vector<Trace> traces;
  if (NeedsTraces(program)) {
    absl::StatusOr<std::vector<Trace>> read = ReadTraces(traces_path);
    if (!read.ok()) {
      std::cerr << read.status().message() << '\n';
      return 1;
    }
    traces = *std::move(read);
  }
  std::vector<SpeedProgram> programs;
  programs.reserve(threads);
  for (int thread = 0; thread < threads; ++thread) {
    programs.push_back(*MakeSpeedProgram(program, traces, thread, threads));
  }
  const auto part = std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
  nlohmann::json result = allocator == "ebbtide" ? Measure<Ours>(std::move(programs), part)
                                                 : Measure<Malloc>(std::move(programs), part);
  result["malloc"] = MallocLibrary();
  std::cout << result.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace ebbtide::bench

int main(int argc, char** argv) { return ebbtide::bench::Main(argc, argv); }
