// SPDX-License-Identifier: Apache-2.0
//
// The allocator's numbers by kind of memory and by pool: each against what was done, at one stream
// and several. That they add up while threads work is part of the stress conformance.

#include "allocator/usage.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/simulated_streams.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/allocator/adds_up.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

class UsageTest : public testing::TestWithParam<SimulatedDevice::Options> {
 protected:
  UsageTest()
      : device_(GetParam()),
        streams_(&device_),
        allocator_(std::make_unique<CachingAllocator>(
            &device_, CachingAllocator::Options{.streams = &streams_})) {}
  ~UsageTest() override {
    ExpectAddsUp(Stats());
    streams_.CompleteAll();
  }
  AllocatorStats Stats() const { return allocator_->stats(); }
  void* Get(Bytes size, StreamId stream = kDefaultStream, PoolId pool = kSharedPool) {
    return allocator_->Allocate(size, {.stream = stream, .pool = pool}).value();
  }
  const Usage& Pool(const AllocatorStats& stats, PoolId pool) {
    for (const PoolUsage& entry : stats.pools) {
      if (entry.pool == pool) return entry.usage;
    }
    ADD_FAILURE() << "no numbers of pool " << pool;
    return stats.small;
  }

  SimulatedDevice device_;
  SimulatedStreams streams_;
  std::unique_ptr<CachingAllocator> allocator_;
};

SimulatedDevice::Options Device(bool partial, bool move) {
  return {.capacity = 512_MiB, .partial_decommit = partial, .move = move};
}
INSTANTIATE_TEST_SUITE_P(Devices, UsageTest,
                         testing::Values(Device(true, true), Device(true, false),
                                         Device(false, false)),
                         [](const auto& info) {
                           if (!info.param.partial_decommit) return "Whole";
                           return info.param.move ? "Moving" : "Partial";
                         });

TEST_P(UsageTest, BlocksCountForTheKindOfTheirSegment) {
  void* const blocks[] = {Get(100_B), Get(5000_B), Get(3_MiB)};
  AllocatorStats stats = Stats();
  EXPECT_EQ(stats.small.asked.current, 5100_B);
  EXPECT_EQ(stats.small.live.current, 128_B + 5056_B) << "rounded to its class, and to 64";
  EXPECT_EQ(stats.small.allocations, 2);
  EXPECT_EQ(stats.large.asked.current, 3_MiB);
  EXPECT_EQ(stats.large.live.current, 3_MiB);
  EXPECT_EQ(stats.large.live_blocks(), 1);
  ExpectAddsUp(stats);
  for (void* block : blocks) allocator_->Free(block);
  stats = Stats();
  EXPECT_EQ(stats.small.live.current, 0_B);
  EXPECT_EQ(stats.large.live.freed, 3_MiB);
  EXPECT_EQ(stats.large.cached.current, stats.large.held.current);
  EXPECT_EQ(stats.large.frees, 1);
}

TEST_P(UsageTest, TheSnapshotShowsTheSameKinds) {
  std::vector<void*> blocks;
  for (int i = 1; i < 200; ++i) blocks.push_back(Get(Bytes(i * i * 41)));
  for (size_t i = 0; i < blocks.size(); i += 3) allocator_->Free(blocks[i]);
  const AllocatorStats stats = Stats();
  Bytes held[2], live[2], asked[2];
  for (const SegmentPicture& segment : allocator_->TakeSnapshot().segments) {
    const int kind = segment.type == SegmentType::kSmall ? 0 : 1;
    held[kind] += segment.size;
    for (const BlockPicture& block : segment.blocks) {
      if (block.state != BlockState::kActiveAllocated) continue;
      live[kind] += block.size;
      asked[kind] += block.requested;
    }
  }
  for (const Usage* usage : {&stats.small, &stats.large}) {
    const int kind = usage == &stats.small ? 0 : 1;
    EXPECT_EQ(usage->held.current, held[kind]);
    EXPECT_EQ(usage->asked.current, asked[kind]);
    EXPECT_EQ(usage->live.current, live[kind]);
  }
}

TEST_P(UsageTest, TheSnapshotTellsTheNumbersInWords) {
  const PoolId pool = allocator_->CreatePool();
  allocator_->Free(Get(3_MiB));
  void* block = Get(1_MiB, kDefaultStream, pool);
  const Snapshot snapshot = allocator_->TakeSnapshot();
  using Entry = std::pair<std::string, std::string>;
  EXPECT_THAT(
      snapshot.settings,
      testing::IsSupersetOf(
          {Entry("usage of small segments", FormatUsage(Stats().small)),
           Entry("usage of large segments", FormatUsage(Stats().large)),
           Entry("usage of pool 0", FormatUsage(Pool(Stats(), kSharedPool))),
           Entry("usage of pool " + std::to_string(pool), FormatUsage(Pool(Stats(), pool)))}));
  EXPECT_THAT(FormatUsage(Pool(Stats(), pool)),
              testing::StartsWith("live 1.00 MiB (peak 1.00 MiB, 1.00 MiB came), asked 1.00 MiB"));
  EXPECT_THAT(FormatUsage(Stats().large), testing::HasSubstr("2 allocations, 1 frees"));
  allocator_->Free(block);
}

TEST_P(UsageTest, PeaksAreOfTheirOwnMomentAndStayUntilTheyAreReset) {
  allocator_->Free(Get(40_MiB));
  void* block = Get(10_MiB);
  AllocatorStats stats = Stats();
  EXPECT_EQ(stats.large.live.peak, 40_MiB);
  EXPECT_EQ(stats.large.asked.peak, 40_MiB);
  EXPECT_GE(stats.large.cached.peak, 40_MiB);
  EXPECT_EQ(stats.large.live.allocated, 50_MiB);
  EXPECT_EQ(stats.large.live.freed, 40_MiB);
  EXPECT_EQ(stats.small.live.peak, 0_B);
  allocator_->ResetPeaks();
  stats = Stats();
  EXPECT_EQ(stats.large.live.peak, 10_MiB);
  EXPECT_EQ(stats.large.cached.peak, stats.large.cached.current);
  EXPECT_EQ(stats.large.live.allocated, 50_MiB) << "what came and went is never reset";
  allocator_->Free(block);
}

TEST_P(UsageTest, PeaksOfSmallBlocksAreKnownUpToABatch) {
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(Get(1024_B));
  for (void* block : blocks) allocator_->Free(block);
  const AllocatorStats stats = Stats();
  EXPECT_LE(stats.small.live.peak, 2000_KiB);
  EXPECT_GE(stats.small.live.peak, 2000_KiB - 64_KiB);
  EXPECT_EQ(stats.small.live.allocated, 2000_KiB);
}

TEST_P(UsageTest, BlocksThatAwaitAStreamAreNeitherLiveNorCached) {
  const StreamId other = streams_.CreateStream();
  for (Bytes size : {200_B, 3_MiB}) {
    void* block = Get(size);
    streams_.Queue(other, Nanos(1000), {{block, size}});
    EXPECT_TRUE(allocator_->RecordUse(block, other));
    allocator_->Free(block);
    const AllocatorStats stats = Stats();
    const Usage& kind = size < 256_KiB ? stats.small : stats.large;
    EXPECT_GE(kind.awaiting.current, size);
    EXPECT_EQ(kind.live.current, 0_B);
    ExpectAddsUp(stats);
    streams_.CompleteAll();
    allocator_->Settle();
    const Usage after = size < 256_KiB ? Stats().small : Stats().large;
    EXPECT_EQ(after.awaiting.current, 0_B);
    EXPECT_EQ(after.awaiting.freed, kind.awaiting.allocated);
    EXPECT_GE(after.awaiting.peak, size);
  }
}

TEST_P(UsageTest, EachPoolHasItsNumbers) {
  const PoolId a = allocator_->CreatePool();
  const PoolId b = allocator_->CreatePool();
  const StreamId stream = streams_.CreateStream();
  void* in_a = Get(3_MiB, kDefaultStream, a);
  void* also_in_a = Get(2_MiB, stream, a);
  void* in_b = Get(100_B, kDefaultStream, b);
  void* shared = Get(7_MiB);
  allocator_->Free(in_a);
  AllocatorStats stats = Stats();
  ASSERT_EQ(stats.pools.size(), 3u);
  EXPECT_EQ(stats.pools[0].pool, kSharedPool);
  EXPECT_EQ(Pool(stats, a).live.current, 2_MiB);
  EXPECT_EQ(Pool(stats, a).live.allocated, 5_MiB);
  EXPECT_EQ(Pool(stats, a).live.peak, 5_MiB);
  EXPECT_GE(Pool(stats, a).cached.current, 3_MiB);
  EXPECT_EQ(Pool(stats, b).asked.current, 100_B);
  EXPECT_EQ(Pool(stats, kSharedPool).live.current, 7_MiB);
  EXPECT_EQ(Pool(stats, kSharedPool).live.peak, 7_MiB);
  ExpectAddsUp(stats);
  EXPECT_TRUE(allocator_->DestroyPool(a).ok());
  stats = Stats();
  EXPECT_EQ(stats.pools.size(), 2u);
  EXPECT_EQ(Pool(stats, kSharedPool).live.current, 9_MiB) << "blocks outlive their pool";
  EXPECT_EQ(Pool(stats, kSharedPool).live.allocated, 12_MiB);
  ExpectAddsUp(stats);
  for (void* block : {also_in_a, in_b, shared}) allocator_->Free(block);
}

// An arena of a destroyed pool serves the next one.
TEST_P(UsageTest, ANewPoolStartsAtNothingAndTheWholeForgetsNothing) {
  for (int i = 1; i <= 5; ++i) {
    const PoolId pool = allocator_->CreatePool();
    void* const block = Get(3_MiB, kDefaultStream, pool);
    const AllocatorStats stats = Stats();
    EXPECT_EQ(Pool(stats, pool).live.allocated, 3_MiB);
    EXPECT_EQ(Pool(stats, pool).live.peak, 3_MiB);
    EXPECT_EQ(Pool(stats, pool).allocations, 1);
    EXPECT_EQ(stats.large.live.allocated, 3_MiB * i);
    EXPECT_EQ(Pool(stats, kSharedPool).live.allocated, 3_MiB * (i - 1));
    ExpectAddsUp(stats);
    allocator_->Free(block);
    EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  }
}

TEST_P(UsageTest, MemoryThatComesAndGoesIsCounted) {
  allocator_->Free(Get(30_MiB));
  allocator_->ReleaseCached(Bytes::Max());
  const AllocatorStats stats = Stats();
  EXPECT_GE(stats.large.held.allocated, 30_MiB);
  EXPECT_EQ(stats.large.held.freed, stats.large.held.allocated);
  EXPECT_EQ(stats.large.cached.freed, stats.large.cached.allocated);
  EXPECT_GE(stats.large.held.peak, 30_MiB);
}

TEST_P(UsageTest, KindsAndPoolsAddUpWhileThreadsWork) {
  const PoolId pool = allocator_->CreatePool();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    const StreamId stream = t % 2 == 0 ? kDefaultStream : streams_.CreateStream();
    threads.emplace_back([this, t, stream, pool] {
      std::vector<void*> live;
      for (uint64_t i = 0; i < 3000; ++i) {
        const uint64_t draw = (i * 2654435761u + t * 97) % 1009;
        if (live.size() < 8 || draw % 2 == 0) {
          const Bytes size(static_cast<int64_t>(1 + draw * (i % 7 == 0 ? 3000 : 8)));
          live.push_back(Get(size, stream, t < 2 ? pool : kSharedPool));
        } else {
          std::swap(live[draw % live.size()], live.back());
          allocator_->Free(live.back());
          live.pop_back();
        }
        if (live.size() > 60) {
          for (void* block : live) allocator_->Free(block);
          live.clear();
        }
      }
      for (void* block : live) allocator_->Free(block);
    });
  }
  for (int i = 0; i < 200; ++i) ExpectAddsUp(Stats());
  for (std::thread& thread : threads) thread.join();
  const AllocatorStats stats = Stats();
  EXPECT_EQ(stats.small.live.current, 0_B);
  EXPECT_EQ(stats.large.live.current, 0_B);
  EXPECT_GT(stats.large.allocations, 100);
}

}  // namespace
}  // namespace ebbtide
