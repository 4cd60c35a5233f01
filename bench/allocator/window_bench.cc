// SPDX-License-Identifier: Apache-2.0
//
// What it costs to find the cheapest contiguous run of blocks. The argument is the number of
// blocks, half of them free, of up to 8 MiB; a window of 64 MiB is asked for. The names:
//
//     Window       every block is looked at
//     WindowNear   first around the cheapest victim, which is enough there

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "allocator/cheapest_window.h"
#include "benchmark/benchmark.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

// With the cheapest victim in the middle, between free blocks that make it large enough.
std::vector<WindowBlock> RandomBlocks(size_t count) {
  std::mt19937 random(1);
  std::vector<WindowBlock> blocks;
  uintptr_t at = 1 << 30;
  for (size_t i = 0; i < count; ++i) {
    const bool in_the_middle = i + 1 >= count / 2 && i <= count / 2 + 1;
    const Bytes size = in_the_middle ? 32_MiB : Bytes(1 + random() % (8 << 20));
    const double score = 1 + static_cast<double>(random() % 1000);
    blocks.push_back({at, size, i == count / 2 ? 0.5 : i % 2 == 0 ? score : 0.0});
    if (in_the_middle && i != count / 2) blocks.back().score = 0;
    at += static_cast<uintptr_t>(size.count());
  }
  return blocks;
}

WindowBlock Describe(const WindowBlock& block) { return block; }

void Window(benchmark::State& state) {
  const auto blocks = RandomBlocks(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    auto window = CheapestWindow(blocks.begin(), blocks.end(), 64_MiB, Describe);
    benchmark::DoNotOptimize(window);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void WindowNear(benchmark::State& state) {
  const auto blocks = RandomBlocks(static_cast<size_t>(state.range(0)));
  const auto hint = blocks.begin() + state.range(0) / 2;
  for (auto _ : state) {
    auto window = CheapestWindowNear(hint, blocks.begin(), blocks.end(), 64_MiB, Describe);
    benchmark::DoNotOptimize(window);
  }
}

BENCHMARK(Window)->RangeMultiplier(10)->Range(100, 100000);
BENCHMARK(WindowNear)->RangeMultiplier(10)->Range(100, 100000);

}  // namespace
}  // namespace ebbtide
