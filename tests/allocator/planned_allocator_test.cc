// SPDX-License-Identifier: Apache-2.0
//
// Planned placement in the caching allocator: steady programs get the places of a plan, others
// whatever best fit gives, and no block ever lies on another one.

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/small_cache.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "tests/allocator/training_program.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

constexpr int64_t kScale = 64;

// Runs programs, and checks that what is handed out is not in use.
class Runner {
 public:
  Runner(bool partial, bool planned, Bytes budget = Bytes::Max())
      : device_({.capacity = 64_GiB, .partial_decommit = partial, .move = partial}),
        allocator_(&device_, {.budget = budget, .planned = planned}) {}
  ~Runner() { allocator_.CheckInvariants(); }

  struct Result {
    int64_t large = 0;    // requests that a plan is for
    int64_t planned = 0;  // that got their place
    std::vector<uintptr_t> addresses;
  };

  Result Run(const std::vector<ProgramStep>& steps) {
    Result result;
    const int64_t before = allocator_.stats().planned;
    for (const ProgramStep& step : steps) {
      if (step.bytes == 0) {
        Free(step.id);
        continue;
      }
      result.addresses.push_back(Allocate(step.id, step.bytes));
      result.large += step.bytes > static_cast<int64_t>(SmallCache::kMaxSize) ? 1 : 0;
    }
    result.planned = allocator_.stats().planned - before;
    return result;
  }
  uintptr_t Allocate(int64_t id, int64_t bytes) {
    const absl::StatusOr<void*> block = allocator_.Allocate(Bytes(bytes));
    EBB_CHECK(block.ok()) << block.status().ToString();
    const auto begin = reinterpret_cast<uintptr_t>(*block);
    const auto above = live_.lower_bound(begin);
    EXPECT_TRUE(above == live_.end() || begin + bytes <= above->first) << "over the next block";
    EXPECT_TRUE(above == live_.begin() || std::prev(above)->second <= begin) << "in a block";
    live_[begin] = begin + bytes;
    blocks_[id] = begin;
    return begin;
  }
  void Free(int64_t id) {
    const auto block = blocks_.find(id);
    allocator_.Free(reinterpret_cast<void*>(block->second));
    live_.erase(block->second);
    blocks_.erase(block);
  }
  CachingAllocator& allocator() { return allocator_; }

 private:
  SimulatedDevice device_;
  CachingAllocator allocator_;
  std::map<uintptr_t, uintptr_t> live_;
  std::map<int64_t, uintptr_t> blocks_;
};

class PlannedAllocatorTest : public testing::TestWithParam<bool> {
 protected:
  bool partial() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Pages, PlannedAllocatorTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Whole, PlannedAllocatorTest, testing::Values(false));

TEST_P(PlannedAllocatorTest, ASteadyProgramGetsItsPlaces) {
  TrainingProgram program(20, 1);
  Runner runner(partial(), true);
  for (int i = 0; i < 6; ++i) runner.Run(program.Train(kScale));
  // A block that outlives its iteration has two places in turn.
  const Runner::Result first = runner.Run(program.Train(kScale));
  runner.Run(program.Train(kScale));
  const Runner::Result last = runner.Run(program.Train(kScale));
  EXPECT_EQ(last.planned, last.large);
  EXPECT_EQ(std::ssize(last.addresses), std::ssize(first.addresses));
  EXPECT_GE(last.large, 100);
}

TEST_P(PlannedAllocatorTest, WithoutTheOptionNothingIsPlanned) {
  TrainingProgram program(20, 1);
  Runner runner(partial(), false);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(runner.Run(program.Train(kScale)).planned, 0);
}

TEST_P(PlannedAllocatorTest, ASteadyProgramCallsNoDevice) {
  TrainingProgram program(20, 2);
  Runner runner(partial(), true);
  const auto calls = [&] {
    const AllocatorStats stats = runner.allocator().stats();
    return stats.device_commits + stats.device_decommits + stats.device_moves;
  };
  for (int i = 0; i < 8; ++i) runner.Run(program.Train(kScale));
  const int64_t before = calls();
  for (int i = 0; i < 3; ++i) runner.Run(program.Train(kScale));
  EXPECT_EQ(calls(), before);
}

TEST_P(PlannedAllocatorTest, AProgramThatDepartsIsNeverWrongAndComesBack) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    TrainingProgram program(20, seed);
    Runner runner(partial(), true);
    for (int i = 0; i < 6; ++i) runner.Run(program.Train(kScale));
    runner.Run(program.Evaluate(kScale));
    runner.Run(program.Train(2 * kScale));
    for (int64_t i = 0; i < 30; ++i) runner.Allocate(-1 - i, 100'000 * (1 + i % 7));
    runner.Run(program.Evaluate(kScale));
    runner.Run(program.Train(kScale));
    for (int64_t i = 0; i < 30; ++i) runner.Free(-1 - i);
    runner.Run(program.Train(kScale));
    runner.Run(program.Train(kScale));
    const Runner::Result back = runner.Run(program.Train(kScale));
    EXPECT_EQ(back.planned, back.large) << "seed " << seed;
  }
}

// Twenty blocks that pile up and go again, of 6 to 8 MiB: segments of 20 MiB are left with rests.
std::vector<ProgramStep> Pile(int64_t first_id) {
  std::vector<ProgramStep> steps;
  for (int64_t i = 0; i < 20; ++i) steps.push_back({first_id + i, (6 << 20) + (i * i << 13)});
  for (int64_t i = 20; i-- > 0;) steps.push_back({first_id + i, 0});
  return steps;
}

TEST_P(PlannedAllocatorTest, WhatIsGivenBackIsTakenUpAgain) {
  Runner runner(partial(), true);
  for (int64_t i = 0; i < 5; ++i) runner.Run(Pile(100 * i));
  EXPECT_EQ(runner.Run(Pile(500)).planned, 20);
  EXPECT_GT(runner.allocator().ReleaseCached(Bytes::Max()), 0_B);
  EXPECT_EQ(runner.allocator().stats().held, 0_B);
  EXPECT_EQ(runner.allocator().stats().reserved, 0_B);
  for (int64_t i = 6; i < 10; ++i) runner.Run(Pile(100 * i));
  EXPECT_EQ(runner.Run(Pile(1000)).planned, 20);
}

TEST_P(PlannedAllocatorTest, TheBudgetHolds) {
  Bytes held;
  {
    TrainingProgram program(20, 4);
    Runner runner(partial(), false);
    for (int i = 0; i < 4; ++i) runner.Run(program.Train(kScale));
    held = runner.allocator().stats().peak_held;
  }
  TrainingProgram program(20, 4);
  // Pages that the region uses in part are nobody else's.
  const Bytes budget = partial() ? held * 21 / 20 : held;
  Runner runner(partial(), true, budget);
  for (int i = 0; i < 10; ++i) runner.Run(program.Train(kScale));
  EXPECT_LE(runner.allocator().stats().peak_held, budget);
  EXPECT_EQ(runner.allocator().stats().failures, 0);
  EXPECT_GT(runner.allocator().stats().planned, 0);
}

// Where memory goes back only as a whole, a plan is what keeps it together.
TEST(PlannedAllocatorWholeTest, HoldsLessThanBestFit) {
  Bytes held[2];
  Bytes live;
  for (bool planned : {false, true}) {
    Runner runner(/*partial=*/false, planned);
    for (int64_t i = 0; i < 6; ++i) runner.Run(Pile(100 * i));
    runner.allocator().ResetPeaks();
    runner.Run(Pile(600));
    held[planned ? 1 : 0] = runner.allocator().stats().peak_held;
    live = runner.allocator().stats().peak_live;
  }
  EXPECT_LE(held[1], live + 2_MiB);
  EXPECT_GE(held[0], held[1] * 6 / 5);
}

TEST(PlannedAllocatorWholeTest, NeverHoldsMoreThanBestFit) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    Bytes held[2];
    for (bool planned : {false, true}) {
      TrainingProgram program(30, seed);
      Runner runner(/*partial=*/false, planned);
      for (int i = 0; i < 8; ++i) runner.Run(program.Train(kScale));
      held[planned ? 1 : 0] = runner.allocator().stats().peak_held;
    }
    EXPECT_LE(held[1], held[0]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ebbtide
