// SPDX-License-Identifier: Apache-2.0

#include "allocator/awaiting_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace ebbtide {
namespace {

// Events are done when the test says so; streams may be captured or gone.
class ManualStreams : public StreamOrder {
 public:
  absl::StatusOr<Event> Record(StreamId stream) override {
    if (captured.contains(stream)) return absl::FailedPreconditionError("captured");
    if (gone.contains(stream)) return absl::NotFoundError("destroyed");
    live[++last] = stream;
    return last;
  }
  bool IsDone(Event event) override {
    ++queries;
    return event <= done_up_to;
  }
  void Wait(Event event) override { done_up_to = std::max(done_up_to, event); }
  void WaitForAll() override {
    ++waits_for_all;
    done_up_to = last;
  }
  void Release(Event event) override { EXPECT_EQ(live.erase(event), 1u) << "released twice"; }

  std::set<StreamId> captured, gone;
  std::map<Event, StreamId> live;
  Event last = 0;
  Event done_up_to = 0;
  int queries = 0;
  int waits_for_all = 0;
};

class AwaitingBlocksTest : public testing::Test {
 protected:
  std::vector<uintptr_t> Poll(bool wait = false) {
    std::vector<uintptr_t> done;
    blocks_.Poll(wait, &done);
    return done;
  }

  ManualStreams streams_;
  AwaitingBlocks blocks_{&streams_};
};

TEST_F(AwaitingBlocksTest, ABlockThatNobodyElseUsedIsFreeAtOnce) {
  EXPECT_FALSE(blocks_.MayHaveUses());
  EXPECT_FALSE(blocks_.Free(1, 100));
  blocks_.AddUse(2, 7);
  EXPECT_TRUE(blocks_.MayHaveUses());
  EXPECT_FALSE(blocks_.Free(1, 100));
}

TEST_F(AwaitingBlocksTest, ABlockWaitsForEachStreamThatUsedIt) {
  for (StreamId stream : {7, 8, 7}) blocks_.AddUse(1, stream);
  EXPECT_TRUE(blocks_.Free(1, 100));
  EXPECT_EQ(streams_.live.size(), 2u) << "one event for each stream";
  EXPECT_EQ(blocks_.bytes(), 100);
  EXPECT_TRUE(Poll().empty());
  streams_.done_up_to = 1;
  EXPECT_TRUE(Poll().empty());
  streams_.done_up_to = 2;
  EXPECT_EQ(Poll(), std::vector<uintptr_t>{1});
  EXPECT_EQ(blocks_.bytes(), 0);
  EXPECT_TRUE(streams_.live.empty()) << "events go back to their pool";
  EXPECT_FALSE(blocks_.MayHaveUses());
}

TEST_F(AwaitingBlocksTest, APollAsksOnlyForTheOldestOfEachStream) {
  for (uintptr_t block = 1; block <= 1000; ++block) {
    blocks_.AddUse(block, 7);
    blocks_.Free(block, 1);
  }
  EXPECT_TRUE(Poll().empty());
  EXPECT_EQ(streams_.queries, 1);
  EXPECT_EQ(Poll(/*wait=*/true).size(), 1000u);
}

// Hazard: an event that is recorded during a capture breaks the capture.
TEST_F(AwaitingBlocksTest, ACapturedStreamIsAskedAgainOnceItsCaptureHasEnded) {
  blocks_.AddUse(1, 7);
  streams_.captured.insert(7);
  EXPECT_TRUE(blocks_.Free(1, 100));
  EXPECT_TRUE(Poll(/*wait=*/true).empty());
  EXPECT_EQ(streams_.last, 0u);
  streams_.captured.clear();
  EXPECT_TRUE(Poll().empty());
  EXPECT_EQ(streams_.last, 1u);
  streams_.done_up_to = 1;
  EXPECT_EQ(Poll(), std::vector<uintptr_t>{1});
}

TEST_F(AwaitingBlocksTest, ADestroyedStreamIsWaitedForWithTheWholeDevice) {
  blocks_.AddUse(1, 7);
  streams_.gone.insert(7);
  EXPECT_FALSE(blocks_.Free(1, 100));
  EXPECT_EQ(streams_.waits_for_all, 1);
}

TEST_F(AwaitingBlocksTest, AStreamThatEndsAfterItsCaptureLeavesNoBlockBehind) {
  blocks_.AddUse(1, 7);
  streams_.captured.insert(7);
  EXPECT_TRUE(blocks_.Free(1, 100));
  streams_.captured.clear();
  streams_.gone.insert(7);
  EXPECT_EQ(Poll(), std::vector<uintptr_t>{1});
}

TEST_F(AwaitingBlocksTest, ABlockOnHoldWaitsForTheEndOfItAndForItsStreams) {
  blocks_.Hold(1, 100);
  blocks_.AddUse(2, 7);
  blocks_.Hold(2, 50);
  EXPECT_EQ(blocks_.bytes(), 150);
  EXPECT_TRUE(Poll(/*wait=*/true).empty()) << "no device ends a hold";
  EXPECT_TRUE(blocks_.EndHold(1));
  EXPECT_TRUE(blocks_.EndHold(2));
  EXPECT_EQ(blocks_.bytes(), 0);
  blocks_.AddUse(3, 7);
  blocks_.Hold(3, 20);
  EXPECT_FALSE(blocks_.EndHold(3));
  EXPECT_EQ(Poll(/*wait=*/true), std::vector<uintptr_t>{3});
}

TEST_F(AwaitingBlocksTest, EventsGoBackWithTheObject) {
  {
    AwaitingBlocks blocks(&streams_);
    blocks.AddUse(1, 7);
    blocks.Free(1, 100);
    EXPECT_EQ(streams_.live.size(), 1u);
  }
  EXPECT_TRUE(streams_.live.empty());
}

}  // namespace
}  // namespace ebbtide
