// SPDX-License-Identifier: Apache-2.0
//
// What the pattern costs for each call of a program: OnCall with what the call touches, OnDropped
// for what it drops. A chain of layers with three values touched in a call on average, over
// iterations of 400, 4,000 and 40,000 calls; the same with a question after each call, with two
// kinds of iteration in turn, and where nothing ever repeats itself.

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "tests/tracker/pattern/programs.h"
#include "tracker/pattern/call_costs.h"
#include "tracker/pattern/pattern.h"

namespace ebbtide {
namespace {

// A program with its tracks looked up beforehand, so that nothing but the pattern is measured.
struct Prepared {
  struct Step {
    uint64_t signature;
    int64_t nanos;
    uint32_t first_access, accesses_end, first_dropped, dropped_end;
  };
  std::vector<UseTrack> tracks;
  std::vector<Step> steps;
  std::vector<Access> accesses;
  std::vector<const UseTrack*> dropped;

  Prepared(const Calls& calls, int storages) : tracks(storages) {
    for (const RecordedCall& call : calls) {
      Step step = {call.signature, call.duration.count(), Count(accesses), 0, Count(dropped), 0};
      for (const auto& touched : call.touched) {
        UseTrack* const track = &tracks[touched.storage];
        if (touched.kind == RecordedCall::kDropped) {
          dropped.push_back(track);
        } else {
          accesses.push_back(
              {track, touched.kind == RecordedCall::kMade ? Touch::kMade : Touch::kRead});
        }
      }
      step.accesses_end = Count(accesses);
      step.dropped_end = Count(dropped);
      steps.push_back(step);
    }
  }
  template <typename T>
  static uint32_t Count(const std::vector<T>& list) {
    return static_cast<uint32_t>(list.size());
  }

  void Run(const Step& step, int64_t* now, AccessPattern* pattern) const {
    pattern->OnCall(step.signature,
                    absl::MakeConstSpan(accesses).subspan(step.first_access,
                                                          step.accesses_end - step.first_access),
                    Nanos(*now += step.nanos));
    for (uint32_t i = step.first_dropped; i < step.dropped_end; ++i) {
      pattern->OnDropped(*dropped[i]);
    }
  }
};

void RunAll(benchmark::State& state, const Calls& calls, int storages, bool ask) {
  const Prepared program(calls, storages);
  AccessPattern pattern;
  int64_t now = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (const Prepared::Step& step : program.steps) program.Run(step, &now, &pattern);
  }
  size_t next = 0;
  for (auto _ : state) {
    const Prepared::Step& step = program.steps[next];
    program.Run(step, &now, &pattern);
    if (ask) benchmark::DoNotOptimize(pattern.NextUse(program.tracks[next % storages]));
    if (++next == program.steps.size()) next = 0;
  }
  state.counters["departures"] = static_cast<double>(pattern.stats().departures);
  state.counters["MiB"] = static_cast<double>(pattern.memory_bytes()) / (1 << 20);
}

void BM_OnCall(benchmark::State& state) {
  const int layers = static_cast<int>(state.range(0) / 4);
  Calls calls;
  ChainProgram(1, layers).Train(0, &calls);
  RunAll(state, calls, 4 * layers + 2, false);
}
BENCHMARK(BM_OnCall)->Arg(400)->Arg(4000)->Arg(40'000);

void BM_OnCallAndNextUse(benchmark::State& state) {
  const int layers = static_cast<int>(state.range(0) / 4);
  Calls calls;
  ChainProgram(1, layers).Train(0, &calls);
  RunAll(state, calls, 4 * layers + 2, true);
}
BENCHMARK(BM_OnCallAndNextUse)->Arg(400)->Arg(4000)->Arg(40'000);

// Two lengths of a sequence in an order without a rule: a departure at every other iteration.
void BM_TwoLengths(benchmark::State& state) {
  const int layers = static_cast<int>(state.range(0) / 4);
  ChainProgram network(1, layers);
  std::mt19937 draw(1);
  Calls calls;
  for (int i = 0; i < 64; ++i) network.Train(static_cast<int>(draw() % 2), &calls);
  RunAll(state, calls, 4 * layers + 2, false);
}
BENCHMARK(BM_TwoLengths)->Arg(400)->Arg(4000);

void BM_NothingRepeats(benchmark::State& state) {
  AccessPattern pattern;
  std::vector<UseTrack> tracks(1000);
  std::mt19937_64 draw(1);
  int64_t now = 0;
  size_t next = 0;
  for (auto _ : state) {
    const Access accesses[] = {{&tracks[next], Touch::kRead},
                               {&tracks[(next + 1) % 1000], Touch::kRead},
                               {&tracks[(next + 2) % 1000], Touch::kMade}};
    pattern.OnCall(draw(), accesses, Nanos(now += 1000));
    next = (next + 1) % 1000;
  }
}
BENCHMARK(BM_NothingRepeats);

void BM_CallCosts(benchmark::State& state) {
  CallCosts costs(4096);
  uint64_t signature = 0;
  for (auto _ : state) {
    signature = (signature + 1) % 500;
    if (costs.WantsSample(signature)) costs.Add(signature, Nanos(1000));
    benchmark::DoNotOptimize(costs.CostOf(signature));
  }
}
BENCHMARK(BM_CallCosts);

}  // namespace
}  // namespace ebbtide
