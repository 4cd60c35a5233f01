// SPDX-License-Identifier: Apache-2.0
//
// Seeded programs over several streams (stream_program.h). By default 100,000 steps; for more:
//
//     bazel run //tests/allocator:allocator_simulation_test -- --seed=1 --steps=10000000

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "tests/allocator/stream_program.h"

namespace ebbtide {
namespace {

uint64_t first_seed = 1;
int64_t all_steps = 100'000;

constexpr int kStepsOfProgram = 500;
constexpr int kStepsOfSteadyProgram = 1200;
constexpr int kShapes = 6;

std::vector<Step> ProgramOf(const ProgramShape& shape, uint64_t seed) {
  return shape.planned ? MakeSteadyProgram(seed, kStepsOfSteadyProgram)
                       : MakeProgram(seed, kStepsOfProgram);
}

void RunShape(const ProgramShape& shape, uint64_t which) {
  const int64_t steps = shape.planned ? kStepsOfSteadyProgram : kStepsOfProgram;
  const int64_t programs = all_steps / steps / kShapes;
  const auto seed_of = [&](int64_t i) {
    return first_seed + which + kShapes * static_cast<uint64_t>(i);
  };
  const int64_t failing = FirstFailure(
      programs, [&](int64_t i) { RunProgram(ProgramOf(shape, seed_of(i)), shape, seed_of(i)); });
  if (failing == programs) return;
  const uint64_t seed = seed_of(failing);
  const std::vector<Step> program = ProgramOf(shape, seed);
  const std::vector<Step> least = Minimise(program, shape, seed);
  FAIL() << "seed " << seed << ": " << FindFault(program, shape, seed)
         << "\nA shorter program that fails:\n"
         << ToText(least) << FindFault(least, shape, seed);
}

TEST(AllocatorSimulationTest, StreamsWithMoves) { RunShape({}, 0); }

TEST(AllocatorSimulationTest, StreamsWithoutMoves) { RunShape({.move = false}, 1); }

TEST(AllocatorSimulationTest, StreamsOnSmallPieces) { RunShape({.large_pieces = false}, 2); }

TEST(AllocatorSimulationTest, StreamsOnWholeSegments) {
  RunShape({.partial = false, .large_pieces = false}, 3);
}

TEST(AllocatorSimulationTest, SteadyProgramsOnPieces) { RunShape({.planned = true}, 4); }

TEST(AllocatorSimulationTest, SteadyProgramsOnWholeSegments) {
  RunShape({.partial = false, .large_pieces = false, .planned = true}, 5);
}

// Else the two above say nothing about plans.
TEST(AllocatorSimulationTest, SteadyProgramsArePlanned) {
  for (bool partial : {true, false}) {
    const ProgramShape shape = {.partial = partial, .large_pieces = false, .planned = true};
    ProgramCoverage coverage;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      coverage += RunProgram(ProgramOf(shape, seed), shape, seed);
    }
    EXPECT_GE(coverage.planned * 20, coverage.allocations) << coverage.planned;
  }
}

TEST(AllocatorSimulationTest, TheFirstProgramThatFailsIsNamed) {
  EXPECT_EQ(FirstFailure(5, [](int64_t i) { EBB_CHECK(i != 3) << "on purpose"; }), 3);
  EXPECT_EQ(FirstFailure(5, [](int64_t) {}), 5);
}

// A program that breaks a rule is found and cut down to the steps that the fault needs.
TEST(AllocatorSimulationTest, AFaultIsCutDownToWhatItNeeds) {
  std::vector<Step> program = MakeProgram(7, 200);
  // Work that touches a block without a word to the allocator, then frees it: handed out too early.
  const Step fault[] = {{Step::kAllocate, 5, 0, 3'000'000},
                        {Step::kUseUntold, 5, 1, 999},
                        {Step::kFree, 5, 0, 0},
                        {Step::kAllocate, 5, 0, 3'000'000}};
  program.insert(program.begin() + 20, std::begin(fault), std::end(fault));
  EXPECT_NE(FindFault(program, {}, 7), "");
  EXPECT_LE(Minimise(program, {}, 7).size(), 5u);
}

bool ReadFlag(std::string_view argument, std::string_view name, auto* value) {
  absl::string_view text(argument.data(), argument.size());
  return absl::ConsumePrefix(&text, absl::string_view(name.data(), name.size())) &&
         absl::SimpleAtoi(text, value);
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (ebbtide::ReadFlag(argv[i], "--seed=", &ebbtide::first_seed)) continue;
    if (ebbtide::ReadFlag(argv[i], "--steps=", &ebbtide::all_steps)) continue;
    fprintf(stderr, "unknown argument %s; there are --seed=N and --steps=N\n", argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
