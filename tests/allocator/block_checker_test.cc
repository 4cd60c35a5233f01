// SPDX-License-Identifier: Apache-2.0
//
// Every check of BlockChecker fires, and none does for a program that keeps the rules.

#include "allocator/block_checker.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

class BlockCheckerTest : public testing::Test {
 protected:
  BlockCheckerTest()
      : device_({.move = true}),
        streams_(&device_),
        a_(streams_.CreateStream()),
        b_(streams_.CreateStream()),
        range_(device_.Reserve(64_MiB).value()),
        checker_(std::make_unique<BlockChecker>(&device_, &streams_)) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_TRUE(device_.Commit(range_, 32_MiB).ok());
  }
  ~BlockCheckerTest() override {
    checker_ = nullptr;
    streams_.CompleteAll();
    EXPECT_TRUE(device_.Unreserve(range_, 64_MiB).ok());
  }

  void* At(Bytes offset) { return static_cast<char*>(range_) + offset.count(); }

  SimulatedDevice device_;
  SimulatedStreams streams_;
  const StreamId a_, b_;
  void* const range_;
  std::unique_ptr<BlockChecker> checker_;
};

using BlockCheckerDeathTest = BlockCheckerTest;

TEST_F(BlockCheckerTest, KnowsWhatIsLive) {
  checker_->CheckHandOut(At(0_MiB), 1_MiB);
  checker_->CheckHandOut(At(1_MiB), 512_B, a_);
  checker_->CheckHandOut(At(3_MiB), 29_MiB, b_);
  EXPECT_EQ(checker_->live_blocks(), 3);
  checker_->CheckTakeBack(At(1_MiB));
  checker_->CheckHandOut(At(1_MiB), 2_MiB, a_);
  for (Bytes offset : {0_MiB, 1_MiB, 3_MiB}) checker_->CheckTakeBack(At(offset));
  EXPECT_EQ(checker_->live_blocks(), 0);
}

TEST_F(BlockCheckerDeathTest, BlocksMustNotOverlap) {
  checker_->CheckHandOut(At(4_MiB), 4_MiB);
  const std::string text = "over a live block";
  EXPECT_DEATH(checker_->CheckHandOut(At(4_MiB), 4_MiB), text);
  EXPECT_DEATH(checker_->CheckHandOut(At(5_MiB), 1_B), text);
  EXPECT_DEATH(checker_->CheckHandOut(At(0_MiB), 4_MiB + 1_B), text);
  EXPECT_DEATH(checker_->CheckHandOut(At(8_MiB - 1_B), 4_MiB), text);
  EXPECT_DEATH(checker_->CheckHandOut(At(0_MiB), 32_MiB), text);
  checker_->CheckHandOut(At(0_MiB), 4_MiB);
  checker_->CheckHandOut(At(8_MiB), 4_MiB);
}

TEST_F(BlockCheckerDeathTest, ABlockHasMemory) {
  EXPECT_DEATH(checker_->CheckHandOut(At(31_MiB), 1_MiB + 1_B), "without memory");
  EXPECT_DEATH(checker_->CheckHandOut(At(40_MiB), 1_B), "without memory");
  EXPECT_DEATH(checker_->CheckHandOut(At(0_MiB), 0_B), "a block of 0 bytes");
}

TEST_F(BlockCheckerDeathTest, OnlyWhatIsLiveComesBack) {
  checker_->CheckHandOut(At(0_MiB), 1_MiB);
  EXPECT_DEATH(checker_->CheckTakeBack(At(1_MiB)), "not live");
  EXPECT_DEATH(checker_->CheckTakeBack(At(512_B)), "not live");
  checker_->CheckTakeBack(At(0_MiB));
  EXPECT_DEATH(checker_->CheckTakeBack(At(0_MiB)), "not live");
}

TEST_F(BlockCheckerDeathTest, QueuedWorkOfAnotherStreamIsInTheWay) {
  checker_->CheckHandOut(At(0_MiB), 2_MiB, a_);
  streams_.Queue(a_, Nanos(100), {{At(1_MiB), 1_MiB}});
  checker_->CheckTakeBack(At(0_MiB));
  EXPECT_DEATH(checker_->CheckHandOut(At(0_MiB), 2_MiB, b_),
               "on stream 2 while queued work of stream 1 touches it");
  EXPECT_DEATH(checker_->CheckHandOut(At(1_MiB), 64_B), "on stream 0 while queued work of stream");
  checker_->CheckHandOut(At(0_MiB), 1_MiB, b_);  // another part of the freed block
  checker_->CheckHandOut(At(1_MiB), 1_MiB, a_);  // the queue's own order
  checker_->CheckTakeBack(At(1_MiB));
  streams_.Advance(Nanos(100));
  checker_->CheckHandOut(At(1_MiB), 1_MiB, b_);
}

TEST_F(BlockCheckerTest, WhatAStreamWaitsForIsNotInTheWay) {
  streams_.Queue(a_, Nanos(100), {{At(0_MiB), 2_MiB}});
  const StreamOrder::Event event = streams_.Record(a_).value();
  streams_.StreamWaitEvent(b_, event);
  streams_.Release(event);
  checker_->CheckHandOut(At(0_MiB), 2_MiB, b_);
}

TEST_F(BlockCheckerDeathTest, MemoryMustNotGoFromUnderALiveBlock) {
  checker_->CheckHandOut(At(5_MiB), 64_B);
  EXPECT_DEATH((void)device_.Decommit(At(4_MiB), 2_MiB), "under a live block");
  EXPECT_DEATH((void)device_.Move(At(4_MiB), At(32_MiB), 2_MiB), "under a live block");
  EXPECT_DEATH((void)device_.Unreserve(range_, 64_MiB), "under a live block");
  EXPECT_TRUE(device_.Decommit(At(2_MiB), 2_MiB).ok());
  checker_->CheckTakeBack(At(5_MiB));
  EXPECT_TRUE(device_.Decommit(At(4_MiB), 2_MiB).ok());
}

TEST(BlockCheckerDeviceTest, WorksWithoutStreams) {
  SimulatedDevice device({});
  void* range = device.Reserve(2_MiB).value();
  ASSERT_TRUE(device.Commit(range, 2_MiB).ok());
  {
    BlockChecker checker(&device);
    checker.CheckHandOut(range, 2_MiB);
    checker.CheckTakeBack(range);
    EXPECT_EQ(checker.live_blocks(), 0);
  }
  EXPECT_TRUE(device.Unreserve(range, 2_MiB).ok());
}

}  // namespace
}  // namespace ebbtide
