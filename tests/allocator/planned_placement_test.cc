// SPDX-License-Identifier: Apache-2.0
#include "allocator/planned_placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/placement_plan.h"
#include "gtest/gtest.h"
#include "tests/allocator/training_program.h"

namespace ebbtide {
namespace {

// Does what an owner does, and knows which places are in use.
class Owner {
 public:
  explicit Owner(PlannedPlacementOptions options = {}) : planned_(options) {}

  // Returns whether the block got a place.
  bool Allocate(int64_t id, int64_t bytes) {
    const PlannedPlacement::Request request = planned_.Place(bytes);
    Block block{request.token, bytes, std::nullopt};
    if (request.offset.has_value()) {
      EXPECT_LE(*request.offset + bytes, planned_.height());
      if (IsFree(*request.offset, bytes)) {
        block.offset = request.offset;
      } else {
        planned_.Missed();
      }
    }
    blocks_[id] = block;
    Learn();
    return block.offset.has_value();
  }
  void Free(int64_t id) {
    planned_.Freed(blocks_.at(id).token, blocks_.at(id).bytes);
    blocks_.erase(id);
  }
  // Returns how many blocks got a place.
  int64_t Run(const std::vector<ProgramStep>& steps) {
    int64_t placed = 0;
    for (const ProgramStep& step : steps) {
      if (step.bytes > 0) {
        placed += Allocate(step.id, step.bytes) ? 1 : 0;
      } else {
        Free(step.id);
      }
    }
    return placed;
  }

  const PlannedPlacement& planned() const { return planned_; }
  int64_t live_when_learnt() const { return live_when_learnt_; }

 private:
  struct Block {
    PlannedPlacement::Token token;
    int64_t bytes;
    std::optional<int64_t> offset;
  };

  bool IsFree(int64_t offset, int64_t bytes) const {
    return std::none_of(blocks_.begin(), blocks_.end(), [&](const auto& each) {
      const Block& block = each.second;
      return block.offset.has_value() && *block.offset < offset + bytes &&
             offset < *block.offset + block.bytes;
    });
  }
  void Learn() {
    const std::optional<PlannedPlacement::Problem> problem = planned_.TakeProblem();
    if (!problem.has_value()) return;
    live_when_learnt_ = 0;
    for (const auto& [id, block] : blocks_) live_when_learnt_ += block.bytes;
    planned_.Adopt(*problem, PlanPlacements(problem->requests, {.max_steps = 1'000'000}));
  }

  PlannedPlacement planned_;
  std::map<int64_t, Block> blocks_;
  int64_t live_when_learnt_ = -1;
};

int64_t CountRequests(const std::vector<ProgramStep>& steps) {
  return std::count_if(steps.begin(), steps.end(), [](const auto& step) { return step.bytes > 0; });
}

TEST(PlannedPlacementTest, AnIterationThatWasSeenTwiceIsFollowed) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    TrainingProgram program(20, seed);
    Owner owner;
    for (int i = 0; i < 6; ++i) owner.Run(program.Train(1));
    const std::vector<ProgramStep> steps = program.Train(1);
    EXPECT_EQ(owner.Run(steps), CountRequests(steps)) << "seed " << seed;
    EXPECT_EQ(owner.planned().stats().departures, 0) << "seed " << seed;
  }
}

TEST(PlannedPlacementTest, NothingIsPlannedForARandomProgram) {
  std::mt19937 draw(1);
  Owner owner;
  for (int64_t id = 0; id < 20'000; ++id) {
    EXPECT_FALSE(owner.Allocate(id, 1 + draw() % 1000));
    if (id >= 20) owner.Free(id - 20);
  }
  EXPECT_EQ(owner.planned().stats().problems, 0);
}

// What is only forward and keeps everything repeats itself, layer by layer, and is no iteration.
TEST(PlannedPlacementTest, LayersThatPileUpAreNoIteration) {
  Owner owner;
  for (int64_t id = 0; id < 4000; ++id) EXPECT_FALSE(owner.Allocate(id, 64 + id % 20));
  EXPECT_EQ(owner.planned().stats().problems, 0);
}

TEST(PlannedPlacementTest, AProblemComesWhereTheLeastLives) {
  Owner owner;
  for (int iteration = 0; iteration < 4; ++iteration) {
    for (int64_t i = 0; i < 30; ++i) {
      owner.Allocate(i, 64 + i);
      if (i >= 15) {
        owner.Free(i);
        owner.Free(29 - i);
      }
    }
  }
  // All that lives before an iteration's first request has been freed: only at its end is it none,
  // and a problem is taken right after the last request, whose block still lives.
  EXPECT_EQ(owner.live_when_learnt(), 64 + 29 + 64);
}

TEST(PlannedPlacementTest, AProgramThatDepartsComesBack) {
  TrainingProgram program(20, 3);
  Owner owner;
  for (int i = 0; i < 6; ++i) owner.Run(program.Train(1));
  std::vector<ProgramStep> steps = program.Train(1);
  const int64_t requests = CountRequests(steps);
  // Something extra in the middle of an iteration.
  steps.insert(steps.begin() + static_cast<ptrdiff_t>(steps.size()) / 2, {1'000'000, 12345});
  EXPECT_GE(owner.Run(steps), requests * 9 / 10);
  EXPECT_EQ(owner.planned().stats().departures, 1);
  owner.Free(1'000'000);
  // Another shape, once: nothing of it is in the plan.
  owner.Run(program.Train(3));
  EXPECT_GE(owner.planned().stats().departures, 2);
  owner.Run(program.Train(1));
  EXPECT_EQ(owner.Run(program.Train(1)), requests);
}

TEST(PlannedPlacementTest, SeveralIterationsAreRememberedSideBySide) {
  TrainingProgram program(20, 4);
  Owner owner;
  for (int64_t scale : {1, 2, 1, 2}) {
    for (int i = 0; i < 6; ++i) owner.Run(program.Train(scale));
  }
  for (int64_t scale : {1, 2, 1, 2}) {
    owner.Run(program.Train(scale));
    const std::vector<ProgramStep> steps = program.Train(scale);
    EXPECT_GE(owner.Run(steps) * 10, CountRequests(steps) * 9) << "scale " << scale;
  }
}

// The lifetimes change and the sizes do not: places are taken, and then the plan is made anew.
TEST(PlannedPlacementTest, ItIsLearntAnewWhenBlocksLiveLonger) {
  Owner owner;
  int64_t next = 0, placed = 0;
  std::vector<int64_t> kept;
  for (int iteration = 0; iteration < 40; ++iteration) {
    const bool keeps = iteration >= 6;
    placed = 0;
    for (int64_t i = 0; i < 40; ++i) {
      placed += owner.Allocate(next, 640 + 64 * (i * 7 % 13)) ? 1 : 0;
      if (keeps && i < 30) {
        kept.push_back(next);
      } else {
        owner.Free(next);
      }
      ++next;
    }
    for (int64_t id : kept) owner.Free(id);
    kept.clear();
    if (iteration == 5) {
      EXPECT_EQ(placed, 40);
    } else if (iteration == 6) {
      EXPECT_LT(placed, 40);
    }
  }
  EXPECT_EQ(placed, 40);
  EXPECT_GE(owner.planned().stats().problems, 2);
}

}  // namespace
}  // namespace ebbtide
