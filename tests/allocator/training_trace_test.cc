// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/training_trace.h"

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(TrainingTraceTest, EachBlockIsMadeOnceThenFreedOnce) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const TrainingTrace trace = MakeTrainingTrace({.seed = seed, .layers = 6, .iterations = 3});
    std::vector<Bytes> live(trace.blocks);
    std::vector<int> made(trace.blocks);
    Bytes now, peak;
    for (const TraceEvent& event : trace.events) {
      ASSERT_EQ(event.is_free(), live[event.block] > Bytes(0)) << event.block;
      if (!event.is_free()) ++made[event.block];
      now += event.size - live[event.block];
      live[event.block] = event.size;
      peak = std::max(peak, now);
    }
    for (int count : made) EXPECT_EQ(count, 1);
    EXPECT_EQ(now, Bytes(0));
    EXPECT_EQ(peak, trace.peak_live);
  }
}

TEST(TrainingTraceTest, ASeedRepeatsAndAnotherDiffers) {
  const auto peak = [](uint64_t seed) { return MakeTrainingTrace({.seed = seed}).peak_live; };
  EXPECT_EQ(peak(1), peak(1));
  EXPECT_NE(peak(1), peak(2));
}

}  // namespace
}  // namespace ebbtide
