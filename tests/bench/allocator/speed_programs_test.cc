// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/speed_programs.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

Trace SmallTrace() {
  Trace trace;
  trace.name = "small";
  int64_t live = 0;
  trace.Add({100, 0, 0}, 100, &live);
  trace.Add({200, 1, 0}, 200, &live);
  trace.Add({0, 0, 0}, 100, &live);
  return trace;
}

struct Summary {
  int64_t requests = 0;
  int64_t peak_live = 0;
  int64_t live_at_end = 0;
  int64_t largest = 0;
  int64_t smallest = INT64_MAX;
};

// Runs the program twice round; fails when it frees what is not live or loses a block.
Summary RunTwice(const SpeedProgram& program) {
  std::vector<int64_t> slots(program.slots, 0);
  Summary summary;
  int64_t live = 0;
  std::vector<TraceOp> ops = program.prologue;
  for (int i = 0; i < 2; ++i) ops.insert(ops.end(), program.loop.begin(), program.loop.end());
  for (const TraceOp& op : ops) {
    int64_t& slot = slots.at(op.slot);
    EXPECT_EQ(slot == 0, op.bytes > 0);
    live += op.bytes - slot;
    slot = op.bytes;
    summary.peak_live = std::max(summary.peak_live, live);
    if (op.bytes == 0) continue;
    ++summary.requests;
    summary.largest = std::max(summary.largest, op.bytes);
    summary.smallest = std::min(summary.smallest, op.bytes);
  }
  summary.live_at_end = live;
  return summary;
}

TEST(SpeedProgramsTest, EveryProgramCanRunForEver) {
  for (const char* name : {"hit", "traces", "rmm", "cub"}) {
    const auto program = MakeSpeedProgram(name, {SmallTrace()}, 0, 1);
    ASSERT_TRUE(program.ok()) << name;
    EXPECT_GT(RunTwice(*program).requests, 0) << name;
  }
  EXPECT_EQ(MakeSpeedProgram("other", {}, 0, 1).status().code(), absl::StatusCode::kNotFound);
}

TEST(SpeedProgramsTest, TracesLeaveNothingLive) {
  const Summary summary = RunTwice(*MakeSpeedProgram("traces", {SmallTrace(), SmallTrace()}, 1, 2));
  EXPECT_EQ(summary.requests, 8);
  EXPECT_EQ(summary.peak_live, 300);
  EXPECT_EQ(summary.live_at_end, 0);
}

TEST(SpeedProgramsTest, HitAsksForSizesOfTheTraces) {
  const Summary summary = RunTwice(*MakeSpeedProgram("hit", {SmallTrace()}, 0, 1));
  EXPECT_EQ(summary.smallest, 100);
  EXPECT_EQ(summary.largest, 200);
}

TEST(SpeedProgramsTest, RmmKeepsTheShareOfEachThread) {
  const int64_t mib = 1 << 20;
  const Summary alone = RunTwice(*MakeSpeedProgram("rmm", {}, 0, 1));
  EXPECT_EQ(alone.requests, 2 * 3 * 10'000);
  EXPECT_LE(alone.peak_live, 16'000 * mib);
  EXPECT_GT(alone.peak_live, 15'000 * mib);
  EXPECT_LE(alone.largest, 1024 * mib);
  EXPECT_EQ(alone.live_at_end, 0);
  // A block larger than a sixteenth of the limit is asked for by itself.
  EXPECT_LE(RunTwice(*MakeSpeedProgram("rmm", {}, 3, 16)).peak_live, 1024 * mib);
}

TEST(SpeedProgramsTest, CubCoversItsBins) {
  const Summary summary = RunTwice(*MakeSpeedProgram("cub", {}, 0, 1));
  EXPECT_LT(summary.smallest, 512);
  EXPECT_GT(summary.largest, 1 << 20);
  EXPECT_LE(summary.largest, 2 << 20);
}

TEST(SpeedProgramsTest, ThreadsDifferAndRunsDoNot) {
  const SpeedProgram first = *MakeSpeedProgram("cub", {}, 0, 2);
  const SpeedProgram again = *MakeSpeedProgram("cub", {}, 0, 2);
  const SpeedProgram second = *MakeSpeedProgram("cub", {}, 1, 2);
  const auto same = [](const SpeedProgram& a, const SpeedProgram& b) {
    return std::equal(
        a.loop.begin(), a.loop.end(), b.loop.begin(), b.loop.end(),
        [](const TraceOp& x, const TraceOp& y) { return x.bytes == y.bytes && x.slot == y.slot; });
  };
  EXPECT_TRUE(same(first, again));
  EXPECT_FALSE(same(first, second));
}

}  // namespace
}  // namespace ebbtide::bench
