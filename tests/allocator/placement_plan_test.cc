// SPDX-License-Identifier: Apache-2.0
#include "allocator/placement_plan.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gtest/gtest.h"
#include "tests/allocator/training_program.h"

namespace ebbtide {
namespace {

constexpr int64_t kForever = CyclicRequest::kForever;

// Runs the plan around the circle three times, and looks at each pair that lives at once.
void ExpectNoOverlap(const std::vector<CyclicRequest>& requests, const PlacementPlan& plan,
                     int64_t alignment) {
  const auto n = static_cast<int64_t>(requests.size());
  const auto length = static_cast<int64_t>(plan.requests.size());
  ASSERT_TRUE(length == n || length == 2 * n) << length;
  struct Block {
    int64_t freed, low, high;
  };
  std::vector<Block> live;
  int64_t height = 0, peak = 0;
  for (int64_t i = 0; i < 3 * length; ++i) {
    std::erase_if(live, [i](const Block& block) { return block.freed <= i; });
    const CyclicRequest& request = requests[i % n];
    const PlacementPlan::Request& planned = plan.requests[i % length];
    ASSERT_EQ(planned.bytes, request.bytes);
    const bool expected = request.bytes > 0 && request.length <= length;
    ASSERT_EQ(planned.offset >= 0, expected) << i;
    if (!expected) continue;
    ASSERT_EQ(planned.offset % alignment, 0);
    const Block block{i + request.length, planned.offset, planned.offset + request.bytes};
    int64_t sum = 0;
    for (const Block& other : live) {
      ASSERT_TRUE(block.high <= other.low || other.high <= block.low) << i;
      sum += (other.high - other.low + alignment - 1) / alignment * alignment;
    }
    live.push_back(block);
    height = std::max(height, block.high);
    peak = std::max(peak, sum + (request.bytes + alignment - 1) / alignment * alignment);
  }
  EXPECT_EQ(plan.height, height);
  EXPECT_EQ(plan.peak_bytes, peak);
}

TEST(PlacementPlanTest, NothingToPlan) {
  EXPECT_TRUE(PlanPlacements({}).requests.empty());
  const PlacementPlan plan = PlanPlacements(std::vector<CyclicRequest>{{100, kForever}, {0, 1}});
  EXPECT_EQ(plan.height, 0);
  EXPECT_EQ(plan.requests[0].offset, -1);
}

TEST(PlacementPlanTest, WhatOutlivesItsIterationTakesTurns) {
  // The second request's block dies only after its successor has come.
  const std::vector<CyclicRequest> requests = {{512, 1}, {1024, 4}, {512, 1}};
  const PlacementPlan plan = PlanPlacements(requests);
  ASSERT_EQ(plan.requests.size(), 6u);
  ASSERT_NO_FATAL_FAILURE(ExpectNoOverlap(requests, plan, 512));
  EXPECT_NE(plan.requests[1].offset, plan.requests[4].offset);
}

TEST(PlacementPlanTest, APlaceIsUsedWhileItsBlockOfBothEndsIsDead) {
  // One block lives across each end of the iteration, one only in the middle of it; wherever the
  // circle is cut, they never live together.
  const std::vector<CyclicRequest> requests = {{100, 1}, {10'000, 2}, {100, 1}, {10'000, 2}};
  const PlacementPlan plan = PlanPlacements(requests, {.alignment = 1});
  ASSERT_NO_FATAL_FAILURE(ExpectNoOverlap(requests, plan, 1));
  EXPECT_EQ(plan.height, 10'100);
}

TEST(PlacementPlanTest, RandomCirclesAreValid) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 draw(seed);
    const int64_t n = 1 + draw() % 60;
    std::vector<CyclicRequest> requests;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t longest = draw() % 4 == 0 ? 2 * n + 2 : n / 4 + 1;
      const bool forever = draw() % 20 == 0;
      requests.push_back({static_cast<int64_t>(draw() % 3000),
                          forever ? kForever : 1 + static_cast<int64_t>(draw() % longest)});
    }
    const int64_t alignment = seed % 2 == 0 ? 1 : 512;
    const PlanOptions options = {.alignment = alignment, .max_steps = 300'000};
    ASSERT_NO_FATAL_FAILURE(
        ExpectNoOverlap(requests, PlanPlacements(requests, options), alignment))
        << "seed " << seed;
  }
}

// The requests of one iteration of a program that repeats it.
std::vector<CyclicRequest> Recorded(int layers, uint32_t seed) {
  TrainingProgram program(layers, seed);
  struct Block {
    int64_t request, iteration;
  };
  absl::flat_hash_map<int64_t, Block> blocks;
  std::vector<CyclicRequest> requests;
  int64_t count = 0, first = 0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    if (iteration == 1) first = count;
    for (const ProgramStep& step : program.Train(1)) {
      if (step.bytes > 0) {
        if (iteration == 1) requests.push_back({step.bytes, kForever});
        blocks[step.id] = {count++, iteration};
      } else if (const Block block = blocks[step.id]; block.iteration == 1) {
        requests[block.request - first].length = count - block.request;
      }
    }
  }
  return requests;
}

TEST(PlacementPlanTest, TrainingProgramsLoseAtMostThreePercent) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const std::vector<CyclicRequest> requests = Recorded(10 + 5 * static_cast<int>(seed), seed);
    const PlacementPlan plan = PlanPlacements(requests);
    ASSERT_NO_FATAL_FAILURE(ExpectNoOverlap(requests, plan, 512)) << "seed " << seed;
    EXPECT_LE(plan.height, 1.03 * plan.peak_bytes) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ebbtide
