// SPDX-License-Identifier: Apache-2.0
//
// Digests and batched copies of host memory, the CPU side of allocator/cuda/kernels. The figure is
// bytes of content per second of one core. The names:
//
//     Digest      HostDigest of one buffer; the largest ones lie in memory rather than in a cache
//     Misaligned  the same from an address that is one byte off
//     AbslHash    64 bits by absl::HashOf of the same buffer, to compare with
//     Copy        HostCopyBlocks of 1024 blocks; counts the bytes once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "allocator/cuda/kernels/batched_copy.h"
#include "allocator/cuda/kernels/digest.h"
#include "benchmark/benchmark.h"

namespace ebbtide {
namespace {

std::vector<unsigned char> RandomContent(int64_t bytes) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> content(static_cast<size_t>(bytes));
  for (size_t i = 0; i + sizeof(uint64_t) <= content.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&content[i], &word, sizeof(word));
  }
  return content;
}

// Runs `digest(address, bytes)` over state.range(0) bytes that begin `offset` bytes into a buffer.
template <typename Function>
void Run(benchmark::State& state, int64_t offset, Function digest) {
  const int64_t bytes = state.range(0);
  const std::vector<unsigned char> content = RandomContent(bytes + offset);
  for (auto _ : state) {
    auto result = digest(content.data() + offset, bytes);
    benchmark::DoNotOptimize(result);
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

void Digest(benchmark::State& state) {
  Run(state, 0, [](const void* at, int64_t bytes) { return HostDigest({at, bytes}).low; });
}

void Misaligned(benchmark::State& state) {
  Run(state, 1, [](const void* at, int64_t bytes) { return HostDigest({at, bytes}).low; });
}

void AbslHash(benchmark::State& state) {
  Run(state, 0, [](const unsigned char* at, int64_t bytes) {
    return absl::HashOf(
        absl::string_view(reinterpret_cast<const char*>(at), static_cast<size_t>(bytes)));
  });
}

void Copy(benchmark::State& state) {
  constexpr int64_t kBlocks = 1024;
  const int64_t bytes = state.range(0);
  const std::vector<unsigned char> from = RandomContent(kBlocks * bytes);
  std::vector<unsigned char> to(from.size());
  std::vector<BlockCopy> copies;
  for (int64_t i = 0; i < kBlocks; ++i) {
    // Blocks change their order, as when fragments are brought together.
    copies.push_back({&from[i * bytes], &to[(i * 389 % kBlocks) * bytes], bytes});
  }
  for (auto _ : state) {
    HostCopyBlocks(copies.data(), kBlocks);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBlocks * bytes);
}

BENCHMARK(Digest)->Arg(64)->Arg(2 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(256 << 20);
BENCHMARK(Misaligned)->Arg(64 << 10)->Arg(256 << 20);
BENCHMARK(AbslHash)->Arg(64)->Arg(2 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(256 << 20);
BENCHMARK(Copy)->Arg(512)->Arg(64 << 10);

}  // namespace
}  // namespace ebbtide
