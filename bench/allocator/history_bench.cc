// SPDX-License-Identifier: Apache-2.0
//
// What the history of an allocator costs for each event: switched off, on, and on with several
// threads that write to one ring. Clock is the system's clock, which an event does not read.

#include "allocator/history_ring.h"
#include "base/clock.h"
#include "benchmark/benchmark.h"

namespace ebbtide {
namespace {

HistoryRing& Ring() {
  static HistoryRing ring(100'000);
  return ring;
}

void Add(benchmark::State& state) {
  if (state.thread_index() == 0) {
    Ring().Record(state.range(0) != 0 ? HistoryRing::kAll : HistoryRing::kNone);
  }
  uint64_t address = 0x1000;
  for (auto _ : state) {
    Ring().Add(HistoryAction::kAlloc, address, Bytes(512), kDefaultStream);
    address += 512;
  }
}

void Read(benchmark::State& state) {
  Ring().Record(HistoryRing::kAll);
  for (int i = 0; i < 100'000; ++i) Ring().Add(HistoryAction::kAlloc, 1, Bytes(1), 0);
  for (auto _ : state) benchmark::DoNotOptimize(Ring().Read());
}

void Clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(MonotonicNow());
}

BENCHMARK(Add)->ArgName("on")->Arg(0)->Arg(1);
BENCHMARK(Add)->ArgName("on")->Arg(1)->ThreadRange(2, 16);
BENCHMARK(Read)->Unit(benchmark::kMillisecond);
BENCHMARK(Clock);

}  // namespace
}  // namespace ebbtide
