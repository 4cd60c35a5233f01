// SPDX-License-Identifier: Apache-2.0
//
// What an allocation costs, with malloc of the C library beside it in the same run. One iteration
// is one Allocate and one Free, so a call costs half of the time shown. The names:
//
//     Hit      the same size again: the block that was just freed
//     Mix      128 live blocks of random sizes, one of them replaced: split, merge, best fit
//     Touch    Hit with every page written: what reuse of committed memory saves
//     Miss     nothing cached: memory from the device, and back to it

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/host_memory.h"
#include "benchmark/benchmark.h"

namespace ebbtide {
namespace {

struct Ours {
  static CachingAllocator& Shared() {
    static HostMemory memory;
    static CachingAllocator allocator(&memory);
    return allocator;
  }
  static void* Get(int64_t size) { return *Shared().Allocate(Bytes(size)); }
  static void Put(void* block) { Shared().Free(block); }
};

struct Libc {
  // aligned as tensors must be
  static void* Get(int64_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }
  static void Put(void* block) { free(block); }
};

template <typename Source>
void Hit(benchmark::State& state) {
  const int64_t size = state.range(0);
  for (auto _ : state) {
    void* block = Source::Get(size);
    benchmark::DoNotOptimize(block);
    Source::Put(block);
  }
}

template <typename Source>
void Mix(benchmark::State& state) {
  std::mt19937 random(static_cast<uint32_t>(state.thread_index()) + 1);
  std::vector<int64_t> sizes;
  for (int i = 0; i < 1024; ++i) {
    sizes.push_back(state.range(0) + random() % (state.range(1) - state.range(0)));
  }
  std::vector<void*> live;
  for (int i = 0; i < 128; ++i) live.push_back(Source::Get(sizes[i]));
  size_t at = 0;
  for (auto _ : state) {
    void*& slot = live[(at * 37) % 128];
    Source::Put(slot);
    slot = Source::Get(sizes[at++ % 1024]);
  }
  for (void* block : live) Source::Put(block);
}

template <typename Source>
void Touch(benchmark::State& state) {
  const int64_t size = state.range(0);
  for (auto _ : state) {
    char* block = static_cast<char*>(Source::Get(size));
    for (int64_t i = 0; i < size; i += 4096) block[i] = 1;
    benchmark::ClobberMemory();
    Source::Put(block);
  }
}

void Miss(benchmark::State& state) {
  HostMemory memory;
  CachingAllocator allocator(&memory);
  void* keep = *allocator.Allocate(Bytes(state.range(0)));  // the segment stays reserved
  for (auto _ : state) {
    allocator.Free(*allocator.Allocate(Bytes(state.range(0))));
    allocator.ReleaseCached(Bytes::Max());
  }
  allocator.Free(keep);
}

BENCHMARK(Hit<Ours>)->Arg(64)->Arg(1024)->Arg(4096)->Arg(8192)->Arg(1 << 20)->Arg(32 << 20);
BENCHMARK(Hit<Libc>)->Arg(64)->Arg(1024)->Arg(4096)->Arg(8192)->Arg(1 << 20)->Arg(32 << 20);
BENCHMARK(Mix<Ours>)->Args({1, 4096})->Args({4097, 1 << 18})->Args({1 << 18, 1 << 23});
BENCHMARK(Mix<Libc>)->Args({1, 4096})->Args({4097, 1 << 18})->Args({1 << 18, 1 << 23});
BENCHMARK(Touch<Ours>)->Arg(1 << 20)->Arg(32 << 20);
BENCHMARK(Touch<Libc>)->Arg(1 << 20)->Arg(32 << 20);
BENCHMARK(Miss)->Arg(1 << 20)->Arg(32 << 20);
BENCHMARK(Hit<Ours>)->Arg(256)->Arg(1 << 20)->ThreadRange(2, 16)->UseRealTime();
BENCHMARK(Hit<Libc>)->Arg(256)->Arg(1 << 20)->ThreadRange(2, 16)->UseRealTime();

}  // namespace
}  // namespace ebbtide
