// SPDX-License-Identifier: Apache-2.0
//
// One load, run once for each call that the allocator makes to its device, with that call failing:
// once, and from there on for ever. After each run all bookkeeping must hold, the device must agree
// with it, and when the device works again everything must be usable and go back. A checker watches
// that no block lies over another and that no memory goes from under one.

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/block_checker.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "gtest/gtest.h"
#include "tests/allocator/training_program.h"
#include "tests/allocator/training_trace.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

constexpr Bytes kBudget = 48_MiB;

// Requests of all sorts under a budget that forces memory to be given back; every third block stays
// for long, and the handler frees some. Returns the failures.
int RunLoad(CachingAllocator* allocator, BlockChecker* checker, std::vector<void*>* live) {
  int failures = 0;
  const auto free_at = [&](size_t place) {
    checker->CheckTakeBack(live->at(place));
    allocator->Free(live->at(place));
    live->erase(live->begin() + static_cast<int64_t>(place));
  };
  allocator->SetPressureHandler([&](const MemoryPressure&) {
    if (live->size() < 8) return false;
    free_at(0);
    return true;
  });
  for (int i = 0; i < 160; ++i) {
    int64_t size = i % 4 == 0 ? 100 + i * 20 : (1 + i * 7919 % 97) * 60'000;
    if (i % 10 == 5) size = 11'000'000 + i * 50'000;  // a segment of its own on some devices
    absl::StatusOr<void*> block = allocator->Allocate(Bytes(size));
    if (!block.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(block.status())) << block.status().ToString();
      ++failures;
      continue;
    }
    checker->CheckHandOut(*block, Bytes(size));
    live->push_back(*block);
    if (i % 3 != 0) free_at(live->size() / 2);
    if (i % 40 == 39) allocator->ReleaseCached(4_MiB);
  }
  allocator->SetPressureHandler(nullptr);
  return failures;
}

void ExpectConsistent(const CachingAllocator& allocator, const SimulatedDevice& device) {
  allocator.CheckInvariants();
  const AllocatorStats stats = allocator.stats();
  EXPECT_EQ(stats.held, device.committed());
  EXPECT_EQ(stats.held, stats.live + stats.cached);
  EXPECT_GE(stats.cached, 0_B);
  EXPECT_LE(device.peak_committed(), allocator.budget());
}

class FailureInjectionTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(FailureInjectionTest, AnyDeviceCallMayFail) {
  const auto [partial, for_ever] = GetParam();
  const Bytes granularity = partial ? 64_KiB : 2_MiB;
  int64_t calls = 1;
  int runs_with_failures = 0;
  for (int64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE(n);
    SimulatedDevice device({.granularity = granularity, .partial_decommit = partial});
    CachingAllocator allocator(&device, {.budget = kBudget});
    BlockChecker checker(&device);
    std::vector<void*> live;
    device.FailAt(n, for_ever);
    if (RunLoad(&allocator, &checker, &live) > 0) ++runs_with_failures;
    calls = std::max(calls, device.calls());
    ExpectConsistent(allocator, device);
    device.FailAt(0);
    for (void* block : live) {
      checker.CheckTakeBack(block);
      allocator.Free(block);
    }
    ExpectConsistent(allocator, device);
    absl::StatusOr<void*> all = allocator.Allocate(kBudget);
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    allocator.Free(*all);
    allocator.ReleaseCached(Bytes::Max());
    EXPECT_EQ(device.committed(), 0_B);
    EXPECT_EQ(allocator.stats().reserved, 0_B);
  }
  EXPECT_GT(calls, 10);
  EXPECT_TRUE(runs_with_failures > 0 || !for_ever);
}

// Plays a trace; what cannot be had is left out, with its free. Returns the failures.
int Replay(const TrainingTrace& trace, CachingAllocator* allocator, BlockChecker* checker) {
  std::vector<void*> blocks(trace.blocks, nullptr);
  int failures = 0;
  for (const TraceEvent& event : trace.events) {
    void*& block = blocks[event.block];
    if (!event.is_free()) {
      absl::StatusOr<void*> made = allocator->Allocate(event.size);
      if (!made.ok()) ++failures;
      block = made.value_or(nullptr);
      if (block != nullptr) checker->CheckHandOut(block, event.size);
    } else if (block != nullptr) {
      checker->CheckTakeBack(block);
      allocator->Free(block);
    }
  }
  return failures;
}

TEST_P(FailureInjectionTest, TrainingGoesOnAfterAnyFailedCall) {
  const auto [partial, for_ever] = GetParam();
  const TrainingTrace trace = MakeTrainingTrace({.seed = 2, .layers = 12, .iterations = 3});
  // So little that memory goes back and forth: segments that come and go as a whole need more.
  const Bytes budget = RoundUp(trace.peak_live * (partial ? 102 : 128) / 100, 2_MiB);
  int64_t calls = 1;
  int runs_with_failures = 0;
  for (int64_t n = 0; n <= calls; ++n) {  // none fails at first, to count them
    SCOPED_TRACE(n);
    SimulatedDevice device({.granularity = partial ? 64_KiB : 2_MiB, .partial_decommit = partial});
    CachingAllocator allocator(&device, {.budget = budget});
    BlockChecker checker(&device);
    device.FailAt(n, for_ever);
    const int failures = Replay(trace, &allocator, &checker);
    ASSERT_LE(failures, n == 0 ? 0 : for_ever ? trace.blocks : 1);
    if (failures > 0) ++runs_with_failures;
    calls = std::max(calls, device.calls());
    ExpectConsistent(allocator, device);
    EXPECT_EQ(allocator.stats().live, 0_B);
    EXPECT_EQ(checker.live_blocks(), 0);
    device.FailAt(0);
    // Whole segments keep the shape that the failures gave them.
    if (!partial) allocator.ReleaseCached(Bytes::Max());
    EXPECT_EQ(Replay(trace, &allocator, &checker), 0);
    ExpectConsistent(allocator, device);
    allocator.ReleaseCached(Bytes::Max());
    EXPECT_EQ(device.committed(), 0_B);
    EXPECT_EQ(allocator.stats().reserved, 0_B);
  }
  RecordProperty("calls", static_cast<int>(calls));
  EXPECT_GT(calls, 10);
  EXPECT_TRUE(runs_with_failures > 0 || !for_ever);
}

// Plays iterations of a program; what cannot be had is left out, with its free.
class PlannedProgram {
 public:
  // The sizes grow with `scale`.
  PlannedProgram(CachingAllocator* allocator, BlockChecker* checker, int64_t scale)
      : allocator_(allocator), checker_(checker), scale_(scale) {}

  void Play(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      for (const ProgramStep& step : program_.Train(scale_)) {
        step.bytes > 0 ? Make(step) : Free(step.id);
      }
    }
  }
  void FreeAll() {
    while (!blocks_.empty()) Free(blocks_.begin()->first);
  }
  int failures() const { return failures_; }

 private:
  void Make(const ProgramStep& step) {
    const absl::StatusOr<void*> block = allocator_->Allocate(Bytes(step.bytes));
    if (!block.ok()) {
      ++failures_;
      return;
    }
    checker_->CheckHandOut(*block, Bytes(step.bytes));
    blocks_[step.id] = *block;
  }
  void Free(int64_t id) {
    const auto block = blocks_.find(id);
    if (block == blocks_.end()) return;
    checker_->CheckTakeBack(block->second);
    allocator_->Free(block->second);
    blocks_.erase(block);
  }

  CachingAllocator* const allocator_;
  BlockChecker* const checker_;
  const int64_t scale_;
  TrainingProgram program_{20, 1};
  absl::flat_hash_map<int64_t, void*> blocks_;
  int failures_ = 0;
};

// A call may fail while a plan's region is made, grows, or is given up. Afterwards a plan is
// followed again.
TEST_P(FailureInjectionTest, APlanGoesOnAfterAnyFailedCall) {
  const auto [partial, for_ever] = GetParam();
  Bytes budget = Bytes::Max();
  int64_t calls = 1;
  int runs_with_failures = 0;
  // None fails at first, to see what is needed; then one in twenty of many thousand.
  for (int64_t n = 0; n <= calls; n += 1 + calls / 200) {
    SCOPED_TRACE(n);
    SimulatedDevice device({.granularity = 2_MiB, .partial_decommit = partial});
    CachingAllocator allocator(&device, {.budget = budget, .planned = true});
    BlockChecker checker(&device);
    // Only large segments are ever free as a whole.
    PlannedProgram program(&allocator, &checker, partial ? 8 : 64);
    device.FailAt(n, for_ever);
    program.Play(7);
    ASSERT_TRUE(n > 0 || program.failures() == 0);
    if (n == 0) budget = allocator.stats().peak_held;
    if (program.failures() > 0) ++runs_with_failures;
    calls = std::max(calls, device.calls());
    ExpectConsistent(allocator, device);
    device.FailAt(0);
    // Whole segments keep the shape that the failures gave them.
    if (!partial) {
      program.FreeAll();
      allocator.ReleaseCached(Bytes::Max());
    }
    program.Play(12);
    // A plan that misses again and again is given up for long, rightly.
    const int64_t planned = allocator.stats().planned;
    program.Play(1);
    EXPECT_TRUE(for_ever || allocator.stats().planned > planned);
    program.FreeAll();
    ExpectConsistent(allocator, device);
    EXPECT_EQ(allocator.stats().live, 0_B);
    allocator.ReleaseCached(Bytes::Max());
    EXPECT_EQ(device.committed(), 0_B);
  }
  RecordProperty("calls", static_cast<int>(calls));
  EXPECT_GT(calls, 10);
  EXPECT_TRUE(runs_with_failures > 0 || !for_ever);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, FailureInjectionTest,
                         testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace ebbtide
