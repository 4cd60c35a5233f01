// SPDX-License-Identifier: Apache-2.0
//
// Random programs of several threads in one session. Each thread has slots of its own; all read and
// write some shared buffers under a lock, as a correct program would. Rebuilds by one thread then
// read what another is about to overwrite.

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/arena_memory.h"
#include "tests/runtime/random_program.h"

namespace ebbtide {
namespace {

constexpr int kThreads = 4;
constexpr uint64_t kRounds = 60;
constexpr int64_t kSharedBytes = 16384;

struct Outcome {
  std::optional<std::string> failure;
  Program program;
};

void Round(uint64_t seed) {
  std::vector<Outcome> outcomes(kThreads);
  Bytes wanted(kSharedBytes * kSharedSlots);
  for (uint64_t t = 0; t < kThreads; ++t) {
    outcomes[t].program = GenerateProgram(seed * kThreads + t, {.threads = true});
    wanted += WantedPeak(outcomes[t].program);
  }
  const Program& first = outcomes[0].program;
  ArenaMemory arena;
  CachingAllocator::Options options;
  if (first.budget_share > 0) {
    const double bytes = static_cast<double>(wanted.count()) * (0.5 + first.budget_share / 2);
    options.budget = Bytes(static_cast<int64_t>(bytes)) + Bytes(int64_t{kThreads} << 16);
  }
  CachingAllocator allocator(&arena, options);
  auto session =
      BufferSession::Create(&allocator, {.runtime = first.config, .policy = first.policy});
  ASSERT_TRUE(session.ok()) << session.status();
  {
    SharedSlots shared;
    ASSERT_TRUE(Machine(session->get(), &allocator, 0, &shared).FillShared(kSharedBytes).ok());
    std::vector<std::thread> threads;
    for (Outcome& outcome : outcomes) {
      threads.emplace_back([&outcome, &session, &allocator, &shared] {
        Machine machine(session->get(), &allocator, 0, &shared);
        for (int i = 0; i < 3 && !outcome.failure; ++i) {
          outcome.failure = machine.Run(outcome.program);
        }
        if (!outcome.failure) outcome.failure = machine.CompareAll();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.failure.has_value())
        << "round " << seed << ": " << *outcome.failure << "\n" << Describe(outcome.program);
  }
  EXPECT_EQ((*session)->runtime().stats().live_values, 0u);
  EXPECT_EQ(allocator.stats().live, Bytes(0));
}

class RandomProgramThreadsTest : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomProgramThreadsTest, EachThreadReadsItsBytes) {
  for (uint64_t i = 0; i < kRounds && !HasFailure(); ++i) Round(GetParam() * kRounds + i);
}

INSTANTIATE_TEST_SUITE_P(Batch, RandomProgramThreadsTest, testing::Range<uint64_t>(0, 10));

}  // namespace
}  // namespace ebbtide
