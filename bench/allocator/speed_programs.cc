// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/speed_programs.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ebbtide::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr uint32_t kHitBlocks = 64;
constexpr uint32_t kCubBlocks = 128;
constexpr int kCubRequests = 4096;
constexpr int kRmmRequests = 10'000;

// Appends `trace`, and the frees of what it leaves live.
void AppendWhole(const Trace& trace, SpeedProgram* program) {
  std::vector<bool> live(trace.slots, false);
  for (const TraceOp& op : trace.ops) {
    live[op.slot] = op.bytes > 0;
    program->loop.push_back(op);
  }
  for (uint32_t slot = 0; slot < trace.slots; ++slot) {
    if (live[slot]) program->loop.push_back({0, slot, 0});
  }
  program->slots = std::max(program->slots, trace.slots);
}

SpeedProgram MakeTraces(const std::vector<Trace>& traces, int thread) {
  SpeedProgram program;
  // Each thread begins elsewhere, so that not all of them ask for the same at the same time.
  for (size_t i = 0; i < traces.size(); ++i) {
    AppendWhole(traces[(i + thread) % traces.size()], &program);
  }
  return program;
}

SpeedProgram MakeHit(const std::vector<Trace>& traces, std::mt19937_64* random) {
  std::vector<int64_t> sizes;
  for (const Trace& trace : traces) {
    for (const TraceOp& op : trace.ops) {
      if (op.bytes > 0) sizes.push_back(op.bytes);
    }
  }
  SpeedProgram program;
  program.slots = kHitBlocks;
  for (uint32_t slot = 0; slot < kHitBlocks && !sizes.empty(); ++slot) {
    const int64_t bytes = sizes[(*random)() % sizes.size()];
    program.prologue.push_back({bytes, slot, 0});
    program.loop.push_back({0, slot, 0});
    program.loop.push_back({bytes, slot, 0});
  }
  return program;
}

SpeedProgram MakeCub(std::mt19937_64* random) {
  const auto size = [&] {
    const int64_t top = int64_t{512} << (3 * ((*random)() % 5));
    const int64_t bottom = top == 512 ? 0 : top / 8;
    return bottom + 1 + static_cast<int64_t>((*random)() % (top - bottom));
  };
  SpeedProgram program;
  program.slots = kCubBlocks;
  for (uint32_t slot = 0; slot < kCubBlocks; ++slot) program.prologue.push_back({size(), slot, 0});
  for (int i = 0; i < kCubRequests; ++i) {
    const auto slot = static_cast<uint32_t>((*random)() % kCubBlocks);
    program.loop.push_back({0, slot, 0});
    program.loop.push_back({size(), slot, 0});
  }
  return program;
}

// Appends one run of the pattern, from nothing to nothing.
void AppendRmm(int64_t max_bytes, int64_t max_live, std::mt19937_64* random,
               SpeedProgram* program) {
  struct Live {
    uint32_t slot;
    int64_t bytes;
  };
  std::vector<Live> blocks;
  std::vector<uint32_t> spare;
  int64_t live = 0;
  for (int requests = 0; requests < kRmmRequests || !blocks.empty();) {
    const int64_t bytes = 1 + static_cast<int64_t>((*random)() % max_bytes);
    const bool wants = blocks.empty() || (*random)() % 100 < 73;
    // A block that no share of the live bytes has room for is asked for all the same, alone.
    const bool fits = blocks.empty() || live + bytes < max_live;
    if (wants && fits && requests < kRmmRequests) {
      uint32_t slot = static_cast<uint32_t>(blocks.size());
      if (!spare.empty()) {
        slot = spare.back();
        spare.pop_back();
      }
      blocks.push_back({slot, bytes});
      program->loop.push_back({bytes, slot, 0});
      program->slots = std::max(program->slots, slot + 1);
      live += bytes;
      ++requests;
      continue;
    }
    std::swap(blocks[(*random)() % blocks.size()], blocks.back());
    program->loop.push_back({0, blocks.back().slot, 0});
    live -= blocks.back().bytes;
    spare.push_back(blocks.back().slot);
    blocks.pop_back();
  }
}

}  // namespace

bool NeedsTraces(const std::string& name) { return name == "hit" || name == "traces"; }

absl::StatusOr<SpeedProgram> MakeSpeedProgram(const std::string& name,
                                              const std::vector<Trace>& traces, int thread,
                                              int threads) {
  std::mt19937_64 random(static_cast<uint64_t>(thread) + 1);
  if (name == "hit") return MakeHit(traces, &random);
  if (name == "traces") return MakeTraces(traces, thread);
  if (name == "cub") return MakeCub(&random);
  if (name != "rmm") return absl::NotFoundError(absl::StrCat("no program is named ", name));
  SpeedProgram program;
  for (const int64_t max : {1, 64, 1024}) {
    AppendRmm(max * kMiB, 16'000 * kMiB / threads, &random, &program);
  }
  return program;
}

}  // namespace ebbtide::bench
