// SPDX-License-Identifier: Apache-2.0
//
// CachingAllocator with Options::check: what is found, what it costs the budget, and that all else
// works as without. What the checks themselves find is shown in checked_blocks_test.cc.

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/host_memory.h"
#include "allocator/simulated_device.h"
#include "allocator/simulated_streams.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

class CheckedAllocatorTest : public testing::Test {
 protected:
  CheckedAllocatorTest() {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    Make(Bytes::Max(), 1_MiB);
  }
  ~CheckedAllocatorTest() override { allocator_->CheckInvariants(); }

  void Make(Bytes budget, Bytes quarantine) {
    CachingAllocator::Options options = {.budget = budget};
    options.check = {.red_zone = 64_B, .quarantine = quarantine};
    allocator_ = std::make_unique<CachingAllocator>(&device_, options);
  }
  unsigned char* Get(Bytes size, size_t alignment = 64) {
    const absl::StatusOr<void*> block = allocator_->Allocate(size, {.alignment = alignment});
    EXPECT_TRUE(block.ok()) << block.status();
    return static_cast<unsigned char*>(block.value_or(nullptr));
  }

  HostMemory device_;
  std::unique_ptr<CachingAllocator> allocator_;
};

using CheckedAllocatorDeathTest = CheckedAllocatorTest;

TEST_F(CheckedAllocatorTest, TheProgramsPointerIsKnownByEveryFunction) {
  for (Bytes size : {1_B, 100_B, 4096_B, 5000_B, 3_MiB}) {
    unsigned char* block = Get(size);
    memset(block, 1, size.count());
    EXPECT_TRUE(allocator_->Owns(block));
    EXPECT_FALSE(allocator_->Owns(block - 64));
    EXPECT_EQ(allocator_->SizeOf(block), size);
    for (int64_t offset : {int64_t{0}, size.count() / 2, size.count() - 1}) {
      const auto info = allocator_->Find(block + offset);
      ASSERT_TRUE(info.has_value()) << size << " at " << offset;
      EXPECT_EQ(info->begin, block);
      EXPECT_EQ(info->size, size);
      EXPECT_EQ(info->asked, size);
    }
    EXPECT_FALSE(allocator_->Find(block - 1).has_value()) << "a red zone belongs to nobody";
    EXPECT_FALSE(allocator_->Find(block + size.count()).has_value());
    EXPECT_THAT(allocator_->Describe(block), testing::HasSubstr("allocated by thread"));
    allocator_->Free(block, size);
    EXPECT_FALSE(allocator_->Owns(block));
    EXPECT_FALSE(allocator_->Find(block).has_value());
    EXPECT_THAT(allocator_->Describe(block), testing::HasSubstr("freed by thread"));
  }
  EXPECT_EQ(allocator_->Describe(this), "");
}

TEST_F(CheckedAllocatorTest, BlocksKeepTheirAlignmentBehindTheRedZone) {
  for (size_t alignment : {64, 128, 256, 4096, 1 << 16, 2 << 20}) {
    for (Bytes size : {100_B, 5000_B, 1_MiB}) {
      unsigned char* block = Get(size, alignment);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment << " " << size;
      memset(block, 1, size.count());
      allocator_->Free(block, size);
    }
  }
}

TEST_F(CheckedAllocatorTest, RedZonesAndQuarantineCountAsHeldAndTheNumbersAddUp) {
  unsigned char* a = Get(1000_B);
  unsigned char* b = Get(100_KiB);
  AllocatorStats stats = allocator_->stats();
  EXPECT_EQ(stats.asked, 1000_B + 100_KiB);
  EXPECT_GE(stats.rounding, 256_B) << "two red zones each";
  allocator_->Free(a);
  allocator_->Free(b);
  stats = allocator_->stats();
  EXPECT_EQ(stats.live, 0_B);
  EXPECT_EQ(stats.live_blocks, 0);
  EXPECT_EQ(stats.quarantined, 1128_B + 100_KiB + 128_B);
  EXPECT_GE(stats.awaiting, stats.quarantined);
  EXPECT_EQ(stats.held, stats.live + stats.awaiting + stats.cached);
  allocator_->ReleaseCached(Bytes::Max());
  EXPECT_EQ(allocator_->stats().held, 0_B);
}

TEST_F(CheckedAllocatorTest, TheBudgetIsNeverExceededByRedZones) {
  Make(1_MiB, 64_KiB);
  std::vector<unsigned char*> blocks;
  for (;;) {
    const absl::StatusOr<void*> block = allocator_->Allocate(60_KiB);
    if (!block.ok()) break;
    blocks.push_back(static_cast<unsigned char*>(*block));
    memset(blocks.back(), 2, (60_KiB).count());
  }
  EXPECT_GE(blocks.size(), 16u);
  EXPECT_LE(allocator_->stats().peak_held, 1_MiB);
  for (unsigned char* block : blocks) allocator_->Free(block);
}

TEST_F(CheckedAllocatorTest, UnderPressureTheQuarantineGoesBeforeTheHandlerIsAsked) {
  Make(16_MiB, 16_MiB);
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(Get(1_MiB));
  for (unsigned char* block : blocks) allocator_->Free(block);
  EXPECT_GE(allocator_->stats().quarantined, 12_MiB);
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) { return ++calls, false; });
  unsigned char* large = Get(6_MiB);
  EXPECT_GT(allocator_->stats().quarantined, 0_B) << "more was given up than was missing";
  unsigned char* rest = Get(9_MiB);
  EXPECT_EQ(calls, 0);
  allocator_->Free(large);
  allocator_->Free(rest);
}

TEST_F(CheckedAllocatorTest, WhatTheHandlerFreesDoesNotWait) {
  Make(16_MiB, 16_MiB);
  std::vector<unsigned char*> victims;
  for (int i = 0; i < 15; ++i) victims.push_back(Get(1_MiB));
  allocator_->SetPressureHandler([&](const MemoryPressure& pressure) {
    EXPECT_EQ(pressure.requested, 5_MiB);
    if (victims.empty()) return false;
    allocator_->Free(victims.back());
    victims.pop_back();
    return true;
  });
  allocator_->Free(Get(5_MiB));
  EXPECT_GE(victims.size(), 9u) << "more was evicted than was missing";
  for (unsigned char* block : victims) allocator_->Free(block);
}

TEST_F(CheckedAllocatorTest, ALoweredBudgetEndsTheWait) {
  Make(64_MiB, 64_MiB);
  unsigned char* kept = Get(1_MiB);
  unsigned char* freed = Get(20_MiB);
  allocator_->Free(Get(20_MiB));
  allocator_->set_budget(4_MiB);
  EXPECT_EQ(allocator_->stats().quarantined, 0_B);
  allocator_->Free(freed);
  EXPECT_LE(allocator_->stats().held, 4_MiB) << "it waits although the budget is exceeded";
  allocator_->Free(kept);
}

TEST_F(CheckedAllocatorTest, OutOfMemoryTellsWhatTheProgramAskedFor) {
  Make(1_MiB, 64_KiB);
  OutOfMemory details;
  EXPECT_TRUE(absl::IsResourceExhausted(allocator_->Allocate(2_MiB, &details).status()));
  EXPECT_EQ(details.asked, 2_MiB);
  EXPECT_TRUE(absl::IsResourceExhausted(allocator_->Allocate(1_MiB, &details).status()));
  EXPECT_EQ(details.asked, 1_MiB);
  EXPECT_TRUE(absl::IsResourceExhausted(allocator_->Allocate(Bytes::Max()).status()));
}

TEST_F(CheckedAllocatorTest, APoolIsEmptiedOfItsQuarantineToo) {
  const PoolId pool = allocator_->CreatePool();
  void* block = allocator_->Allocate(600_KiB, {.pool = pool}).value();
  EXPECT_EQ(allocator_->Find(block)->pool, pool);
  allocator_->Free(block);
  EXPECT_GE(allocator_->TrimPool(pool).value(), 600_KiB);
  EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
}

TEST_F(CheckedAllocatorTest, ASnapshotShowsThatABlockWaits) {
  unsigned char* block = Get(300_KiB);
  allocator_->Free(block);
  int waiting = 0;
  for (const SegmentPicture& segment : allocator_->TakeSnapshot().segments) {
    for (const BlockPicture& picture : segment.blocks) {
      if (picture.state != BlockState::kActiveAwaitingFree) continue;
      ++waiting;
      EXPECT_EQ(picture.requested, 300_KiB);
      EXPECT_EQ(picture.address, reinterpret_cast<uintptr_t>(block) - 64);
    }
  }
  EXPECT_EQ(waiting, 1);
}

TEST_F(CheckedAllocatorTest, ThreadsUnderPressurePass) {
  Make(24_MiB, 4_MiB);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<unsigned char*, Bytes>> live;
      for (int i = 0; i < 1500; ++i) {
        if (live.size() < 10 || random() % 2 == 0) {
          const Bytes size(static_cast<int64_t>(1 + random() % (i % 10 == 0 ? 600000 : 9000)));
          const absl::StatusOr<void*> block = allocator_->Allocate(size);
          if (block.ok()) {
            live.emplace_back(static_cast<unsigned char*>(*block), size);
            memset(*block, static_cast<int>(t), size.count());
            continue;
          }
          if (live.empty()) continue;
        }
        std::swap(live[random() % live.size()], live.back());
        allocator_->Free(live.back().first, live.back().second);
        live.pop_back();
      }
      for (const auto& [block, size] : live) allocator_->Free(block, size);
    });
  }
  for (int i = 0; i < 50; ++i) {
    const AllocatorStats stats = allocator_->stats();
    EXPECT_EQ(stats.held, stats.live + stats.awaiting + stats.cached);
    EXPECT_GE(stats.cached, 0_B);
    allocator_->CheckBlocks();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator_->stats().live, 0_B);
  EXPECT_LE(allocator_->stats().peak_held, 24_MiB);
}

TEST_F(CheckedAllocatorDeathTest, AWritePastTheEndOfABlock) {
  for (Bytes size : {100_B, 300_KiB}) {
    EXPECT_DEATH(
        {
          unsigned char* block = Get(size);
          block[size.count()] = 7;
          allocator_->Free(block);
        },
        "overrun: 1 byte was written past a block(.|\n)*allocated by(.|\n)*freed by");
  }
}

TEST_F(CheckedAllocatorDeathTest, AnOverrunOfABlockThatIsNeverFreedIsFoundAtTheEnd) {
  EXPECT_DEATH(
      {
        Get(100_B)[100] = 7;
        allocator_.reset();
      },
      "overrun: 1 byte(.|\n)*live(.|\n)*allocated by");
}

TEST_F(CheckedAllocatorDeathTest, AWriteToAFreedBlock) {
  EXPECT_DEATH(
      {
        unsigned char* block = Get(100_KiB);
        allocator_->Free(block);
        block[70000] = 1;
        allocator_->ReleaseCached(Bytes::Max());
      },
      "use after free: 1 byte was written to a freed block, from byte 70000(.|\n)*freed by");
}

TEST_F(CheckedAllocatorDeathTest, MisuseIsReportedWithBothStacks) {
  unsigned char* block = Get(100_B);
  EXPECT_DEATH(allocator_->Free(block, 99_B), "wrong size(.|\n)*100 bytes(.|\n)*allocated by");
  EXPECT_DEATH(allocator_->Free(block + 8), "foreign pointer(.|\n)*8 bytes from the begin");
  EXPECT_DEATH(allocator_->Free(this), "foreign pointer: free of 0x");
  allocator_->Free(block);
  EXPECT_DEATH(allocator_->Free(block), "double free(.|\n)*allocated by(.|\n)*freed by");
  EXPECT_DEATH((void)allocator_->SizeOf(block), "use after free: size");
}

// Where the host may not write into blocks it can still keep its notes.
struct DeviceOutOfReach {
  explicit DeviceOutOfReach(bool with_bytes)
      : device({.capacity = 64_MiB, .with_bytes = with_bytes}), streams(&device) {
    CachingAllocator::Options options = {.streams = &streams};
    options.check = CheckedBlocks::Options();
    allocator = std::make_unique<CachingAllocator>(&device, options);
  }
  SimulatedDevice device;
  SimulatedStreams streams;
  std::unique_ptr<CachingAllocator> allocator;
};

// Must be the first here that makes such a device.
TEST(DeviceOutOfReachTest, ItIsSaidOnce) {
  testing::internal::CaptureStderr();
  for (const bool with_bytes : {false, true}) DeviceOutOfReach device(with_bytes);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string words = "check: the host cannot look into this device's memory";
  EXPECT_NE(said.find(words), std::string::npos) << said;
  EXPECT_EQ(said.find(words), said.rfind(words)) << said;
}

TEST(DeviceOutOfReachTest, TheNotesAreKeptAndNothingIsWrittenOrWaits) {
  for (const bool with_bytes : {false, true}) {
    DeviceOutOfReach on(with_bytes);
    CachingAllocator& allocator = *on.allocator;
    const StreamId other = on.streams.CreateStream();
    void* block = allocator.Allocate(3_MiB).value();
    EXPECT_EQ(allocator.stats().rounding, 0_B) << "there must be no red zones";
    if (with_bytes) static_cast<char*>(block)[5] = 5;
    on.streams.Queue(other, Nanos(100), {{block, 3_MiB}});
    EXPECT_TRUE(allocator.RecordUse(static_cast<char*>(block) + 70000, other));
    allocator.Free(block, 3_MiB);
    if (with_bytes) {
      EXPECT_EQ(static_cast<char*>(block)[5], 5) << "queued work reads poison";
    }
    EXPECT_EQ(allocator.stats().awaiting, 3_MiB);
    EXPECT_EQ(allocator.stats().quarantined, 0_B);
    EXPECT_DEATH(allocator.Free(block), "double free(.|\n)*allocated by(.|\n)*freed by");
    on.streams.CompleteAll();
    allocator.Settle();
    EXPECT_EQ(allocator.stats().awaiting, 0_B);
    allocator.CheckInvariants();
  }
}

}  // namespace
}  // namespace ebbtide
