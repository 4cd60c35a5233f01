// SPDX-License-Identifier: Apache-2.0
//
// What the runtime costs a call when memory is plentiful: the bracket of BeginCall and EndCall
// around an operator with three resident arguments, without and with remembering it, and a rebuild
// by a kernel that does next to nothing.

#include <atomic>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "policy/registry.h"
#include "runtime/runtime.h"

namespace ebbtide {
namespace {

constexpr Bytes kBytes{1 << 20};

class Nothing : public Operation {
 public:
  absl::string_view name() const override { return "nothing"; }
};

// A host whose memory are addresses without bytes.
class EmptyHost : public Host, public OpReplayer {
 public:
  absl::StatusOr<void*> AllocateMemory(Bytes) override { return Address(); }
  void FreeMemory(void*) override {}
  void CopyMemory(void*, const void*, Bytes) override {}
  void* TakeMemory(void*) override { return Address(); }
  bool GiveMemory(void*, void*) override { return true; }
  absl::Status Replay(const Call&, absl::Span<void* const>, absl::Span<void*> outputs) override {
    for (void*& output : outputs) output = Address();
    return absl::OkStatus();
  }

 private:
  static void* Address() {
    static char memory;
    return &memory;
  }
};

struct Bench {
  EmptyHost host;
  Runtime runtime;

  explicit Bench(absl::string_view policy = "dtr-eq", double stress = 0)
      : runtime({.stress_probability = stress}, *MakePolicy(policy, Bytes(1)), &host, &host) {}

  Storage* Source() {
    std::atomic<void*> slot{nullptr};
    return runtime.Adopt(&slot, nullptr, kBytes, &host);
  }
};

void BM_BracketNotRemembered(benchmark::State& state) {
  Bench bench;
  Storage* const storages[] = {bench.Source(), bench.Source(), bench.Source()};
  for (auto _ : state) {
    Runtime::Argument arguments[3];
    for (int i = 0; i < 3; ++i) arguments[i].storage = storages[i];
    benchmark::DoNotOptimize(bench.runtime.BeginCall(absl::MakeSpan(arguments)));
    bench.runtime.EndCall(absl::MakeSpan(arguments), nullptr, {}, Nanos(1));
  }
  for (Storage* storage : storages) bench.runtime.Drop(storage);
}
BENCHMARK(BM_BracketNotRemembered);

// The output is adopted and dropped again, as a framework does for each intermediate tensor.
void BM_BracketRemembered(benchmark::State& state) {
  Bench bench;
  Storage* const storages[] = {bench.Source(), bench.Source(), bench.Source()};
  for (auto _ : state) {
    Runtime::Argument arguments[3];
    for (int i = 0; i < 3; ++i) arguments[i].storage = storages[i];
    benchmark::DoNotOptimize(bench.runtime.BeginCall(absl::MakeSpan(arguments)));
    Storage* output = bench.Source();
    bench.runtime.EndCall(absl::MakeSpan(arguments), std::make_unique<Nothing>(), {&output, 1},
                          Nanos(1));
    bench.runtime.Drop(output);
  }
  for (Storage* storage : storages) bench.runtime.Drop(storage);
}
BENCHMARK(BM_BracketRemembered);

void BM_InPlaceOnASource(benchmark::State& state) {
  Bench bench;
  Storage* const storages[] = {bench.Source(), bench.Source(), bench.Source()};
  for (auto _ : state) {
    Runtime::Argument arguments[3];
    for (int i = 0; i < 3; ++i) arguments[i].storage = storages[i];
    arguments[0].written = true;
    benchmark::DoNotOptimize(bench.runtime.BeginCall(absl::MakeSpan(arguments)));
    bench.runtime.EndCall(absl::MakeSpan(arguments), std::make_unique<Nothing>(), {}, Nanos(1));
  }
  for (Storage* storage : storages) bench.runtime.Drop(storage);
}
BENCHMARK(BM_InPlaceOnASource);

void BM_EvictAndRebuild(benchmark::State& state) {
  Bench bench("lru");
  Storage* const source = bench.Source();
  Storage* made = bench.Source();
  Runtime::Argument argument{.storage = source};
  (void)bench.runtime.BeginCall(absl::MakeSpan(&argument, 1));
  bench.runtime.EndCall(absl::MakeSpan(&argument, 1), std::make_unique<Nothing>(), {&made, 1},
                        Nanos(1));
  for (auto _ : state) {
    bench.runtime.RelievePressure(Bytes(1));
    bench.runtime.Unpin(*bench.runtime.Pin(made));
  }
  bench.runtime.Drop(made);
  bench.runtime.Drop(source);
}
BENCHMARK(BM_EvictAndRebuild);

// A chain of dropped values: time per call of the chain.
void BM_RebuildChain(benchmark::State& state) {
  const auto length = static_cast<int>(state.range(0));
  Bench bench("lru");
  Storage* const source = bench.Source();
  Storage* last = source;
  for (int i = 0; i < length; ++i) {
    Runtime::Argument argument{.storage = last};
    (void)bench.runtime.BeginCall(absl::MakeSpan(&argument, 1));
    Storage* next = bench.Source();
    bench.runtime.EndCall(absl::MakeSpan(&argument, 1), std::make_unique<Nothing>(), {&next, 1},
                          Nanos(1));
    if (last != source) bench.runtime.Drop(last);
    last = next;
  }
  for (auto _ : state) {
    bench.runtime.RelievePressure(Bytes::Max());
    bench.runtime.Unpin(*bench.runtime.Pin(last));
  }
  state.SetItemsProcessed(state.iterations() * length);
  bench.runtime.Drop(last);
  bench.runtime.Drop(source);
}
BENCHMARK(BM_RebuildChain)->Arg(10)->Arg(1000);

}  // namespace
}  // namespace ebbtide
