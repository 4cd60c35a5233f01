// SPDX-License-Identifier: Apache-2.0
//
// Streams, uses by other streams, pools and pointers into blocks, one behaviour a test. What random
// programs of all of these do is shown in allocator_simulation_test.cc.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocator/block_checker.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/simulated_streams.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

class StreamAllocatorTest : public testing::TestWithParam<SimulatedDevice::Options> {
 protected:
  StreamAllocatorTest() : device_(GetParam()), streams_(&device_) { Make(Bytes::Max()); }
  ~StreamAllocatorTest() override {
    allocator_->CheckInvariants();
    streams_.CompleteAll();
  }

  void Make(Bytes budget) {
    allocator_ = std::make_unique<CachingAllocator>(
        &device_, CachingAllocator::Options{.budget = budget, .streams = &streams_});
  }
  void* Get(Bytes size, StreamId stream = kDefaultStream, PoolId pool = kSharedPool) {
    const absl::StatusOr<void*> block = allocator_->Allocate(size, {stream, pool});
    EXPECT_TRUE(block.ok()) << block.status().ToString();
    return block.ok() ? *block : nullptr;
  }
  void Use(void* block, Bytes size, StreamId stream) {
    streams_.Queue(stream, Nanos(1000), {{block, size}});
    EXPECT_TRUE(allocator_->RecordUse(block, stream));
  }

  SimulatedDevice device_;
  SimulatedStreams streams_;
  std::unique_ptr<CachingAllocator> allocator_;
};

SimulatedDevice::Options Device(bool partial, bool move) {
  return {.capacity = 512_MiB, .partial_decommit = partial, .move = move};
}
INSTANTIATE_TEST_SUITE_P(Devices, StreamAllocatorTest,
                         testing::Values(Device(true, true), Device(true, false),
                                         Device(false, false)),
                         [](const auto& info) {
                           if (!info.param.partial_decommit) return "Whole";
                           return info.param.move ? "Moving" : "Partial";
                         });

TEST_P(StreamAllocatorTest, FreedMemoryIsReusedAtOnceOnItsStream) {
  const StreamId stream = streams_.CreateStream();
  for (Bytes size : {200_B, 64_KiB, 3_MiB}) {
    void* first = Get(size, stream);
    streams_.Queue(stream, Nanos(1000), {{first, size}});
    allocator_->Free(first);
    EXPECT_EQ(Get(size, stream), first) << FormatBytes(size);
  }
}

TEST_P(StreamAllocatorTest, FreedMemoryIsNotReusedOnAnotherStreamWhileWorkIsQueued) {
  const StreamId other = streams_.CreateStream();
  for (Bytes size : {200_B, 64_KiB, 3_MiB}) {
    void* first = Get(size);
    streams_.Queue(kDefaultStream, Nanos(1000), {{first, size}});
    allocator_->Free(first);
    void* second = Get(size, other);
    EXPECT_FALSE(streams_.FindConflict(second, size, other).has_value()) << FormatBytes(size);
  }
}

TEST_P(StreamAllocatorTest, OtherStreamsGetWhatIsQuietBeforeABudgetIsShort) {
  Make(32_MiB);
  const StreamId other = streams_.CreateStream();
  void* first = Get(24_MiB);
  allocator_->Free(first);  // nothing is queued: quiet
  void* second = Get(24_MiB, other);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(allocator_->stats().waits, 0);
}

TEST_P(StreamAllocatorTest, ARequestWaitsForTheDeviceWhereThatMakesItFit) {
  Make(32_MiB);
  const StreamId other = streams_.CreateStream();
  void* first = Get(24_MiB);
  streams_.Queue(kDefaultStream, Nanos(1000), {{first, 24_MiB}});
  allocator_->Free(first);
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) { return ++calls, false; });
  EXPECT_NE(Get(24_MiB, other), nullptr);
  EXPECT_EQ(allocator_->stats().waits, 1);
  EXPECT_EQ(calls, 0) << "something was evicted although waiting was enough";
}

TEST_P(StreamAllocatorTest, ABlockThatOthersUseWaitsForAllOfThem) {
  const StreamId a = streams_.CreateStream();
  const StreamId b = streams_.CreateStream();
  for (Bytes size : {200_B, 3_MiB}) {
    void* block = Get(size);
    Use(block, size, a);
    Use(block, size, b);
    Use(block, size, b);
    allocator_->Free(block);
    const AllocatorStats stats = allocator_->stats();
    EXPECT_GE(stats.awaiting, size);
    EXPECT_EQ(stats.held, stats.live + stats.awaiting + stats.cached);
    EXPECT_NE(Get(size), block) << "handed out while two streams use it";
    streams_.CompleteAll();
    allocator_->Settle();
    EXPECT_EQ(allocator_->stats().awaiting, 0_B);
  }
  EXPECT_EQ(streams_.counters().live_events, 0);
}

TEST_P(StreamAllocatorTest, AUseOnTheOwnStreamCostsNothing) {
  void* block = Get(3_MiB);
  Use(block, 3_MiB, kDefaultStream);
  allocator_->Free(block);
  EXPECT_EQ(streams_.counters().records, 0);
  EXPECT_EQ(Get(3_MiB), block);
}

TEST_P(StreamAllocatorTest, AUseThroughAViewFindsTheBlock) {
  const StreamId other = streams_.CreateStream();
  for (Bytes size : {200_B, 5000_B, 64_KiB, 40_MiB}) {
    auto* block = static_cast<char*>(Get(size));
    void* neighbour = Get(size);
    for (int64_t offset : {int64_t{0}, int64_t{1}, size.count() / 2, size.count() - 1}) {
      const auto info = allocator_->Find(block + offset);
      ASSERT_TRUE(info.has_value()) << FormatBytes(size) << " at " << offset;
      EXPECT_EQ(info->begin, block);
      EXPECT_EQ(info->asked, size);
    }
    streams_.Queue(other, Nanos(1000), {{block, size}});
    EXPECT_TRUE(allocator_->RecordUse(block + size.count() - 1, other));
    allocator_->Free(block, size);
    EXPECT_NE(Get(size), block);
    allocator_->Free(neighbour, size);
  }
}

TEST_P(StreamAllocatorTest, AddressesInNoBlockAreToldFromOthers) {
  int on_stack = 0;
  void* block = Get(3_MiB);
  void* small = Get(100_B);
  allocator_->Free(block);
  allocator_->Free(small);
  for (const void* address : {static_cast<const void*>(&on_stack), static_cast<const void*>(block),
                              static_cast<const void*>(small), static_cast<const void*>(nullptr)}) {
    EXPECT_FALSE(allocator_->Find(address).has_value());
    EXPECT_FALSE(allocator_->RecordUse(address, 7));
    EXPECT_FALSE(allocator_->Owns(address));
  }
}

TEST_P(StreamAllocatorTest, MemoryOfADestroyedStreamComesBack) {
  Make(80_MiB);
  const StreamId gone = streams_.CreateStream();
  void* kept = Get(8_MiB, gone);
  void* block = Get(48_MiB, gone);
  streams_.Queue(gone, Nanos(1000), {{block, 48_MiB}});
  streams_.DestroyStream(gone);
  allocator_->Free(block);
  EXPECT_NE(Get(50_MiB), nullptr) << "the stream took its memory along";
  allocator_->Free(kept);
}

TEST_P(StreamAllocatorTest, AUseByADestroyedStreamEndsWithTheDevicesWork) {
  const StreamId gone = streams_.CreateStream();
  void* block = Get(3_MiB);
  Use(block, 3_MiB, gone);
  streams_.DestroyStream(gone);
  allocator_->Free(block);
  EXPECT_FALSE(streams_.FindConflict(Get(3_MiB), 3_MiB, kDefaultStream).has_value());
}

TEST_P(StreamAllocatorTest, StreamsThatComeAndGoLeaveNothingBehind) {
  for (int i = 0; i < 300; ++i) {
    const StreamId stream = streams_.CreateStream();
    void* block = Get(3_MiB, stream);
    streams_.Queue(stream, Nanos(10), {{block, 3_MiB}});
    allocator_->Free(block);
    streams_.DestroyStream(stream);
  }
  EXPECT_LE(allocator_->stats().arenas, 3);
  EXPECT_LE(allocator_->stats().held, 40_MiB);
}

TEST_P(StreamAllocatorTest, BlocksAreFreedByAnyThread) {
  const StreamId other = streams_.CreateStream();
  std::vector<void*> blocks;
  for (Bytes size : {100_B, 10_KiB, 5_MiB}) blocks.push_back(Get(size, other));
  std::thread([&] {
    for (void* block : blocks) allocator_->Free(block);
  }).join();
  EXPECT_EQ(allocator_->stats().live, 0_B);
}

// The device stops the program when memory goes from under queued work.
TEST_P(StreamAllocatorTest, TheCacheIsGivenBackOnlyAfterQueuedWork) {
  const StreamId other = streams_.CreateStream();
  void* kept = Get(20_MiB);
  for (StreamId stream : {kDefaultStream, other}) {
    void* block = Get(20_MiB, stream);
    streams_.Queue(stream, Nanos(1000), {{block, 20_MiB}});
    allocator_->Free(block);
    void* shared = Get(2_MiB, stream);  // in the block that was freed
    Use(shared, 2_MiB, stream == other ? kDefaultStream : other);
    allocator_->Free(shared);
  }
  EXPECT_GE(allocator_->ReleaseCached(Bytes::Max()), 40_MiB);
  EXPECT_LE(allocator_->stats().held, 22_MiB);
  EXPECT_TRUE(allocator_->Owns(kept));
  allocator_->Free(kept);
}

// Hazard: streams that stand idle keep what they freed, and nobody finds a large piece any more.
TEST_P(StreamAllocatorTest, IdleStreamsKeepNoMemoryFromOthers) {
  Make(64_MiB);
  std::vector<StreamId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(streams_.CreateStream());
  for (int round = 0; round < 5; ++round) {
    for (StreamId stream : ids) {
      void* blocks[3] = {Get(3_MiB, stream), Get(5000_B, stream), Get(4_MiB, stream)};
      streams_.Queue(stream, Nanos(100), {{blocks[2], 4_MiB}});
      for (void* block : blocks) allocator_->Free(block);
    }
  }
  void* large = Get(60_MiB, ids[0]);
  EXPECT_NE(large, nullptr);
  allocator_->Free(large);
}

TEST_P(StreamAllocatorTest, APoolsCacheIsItsOwnUntilItIsDestroyed) {
  Make(32_MiB);
  const PoolId pool = allocator_->CreatePool();
  void* block = Get(20_MiB, kDefaultStream, pool);
  allocator_->Free(block);
  EXPECT_FALSE(allocator_->Allocate(20_MiB).ok()) << "another's request emptied a graph's pool";
  EXPECT_EQ(Get(20_MiB, kDefaultStream, pool), block) << "a pool's addresses must be stable";
  allocator_->Free(block);
  EXPECT_EQ(allocator_->ReleaseCached(Bytes::Max()), 0_B);
  EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  EXPECT_NE(Get(20_MiB), nullptr);
}

// As a graph that is replayed again and again needs it, whatever others ask for meanwhile.
TEST_P(StreamAllocatorTest, AHeldPoolGivesTheSameRequestsTheSameAddresses) {
  Make(96_MiB);
  const PoolId pool = allocator_->CreatePool();
  std::vector<std::vector<void*>> rounds;
  for (int round = 0; round < 4; ++round) {
    std::vector<void*> blocks;
    for (Bytes size : {3_MiB, 100_B, 9_MiB, 300_KiB, 5_MiB, 4000_B}) {
      blocks.push_back(Get(size, kDefaultStream, pool));
    }
    rounds.push_back(blocks);
    for (void* block : blocks) allocator_->Free(block);
    void* others = Get(60_MiB);  // takes all that it can get
    allocator_->ReleaseCached(Bytes::Max());
    allocator_->Free(others);
  }
  // A first round may find other places than those that follow.
  for (size_t i = 2; i < rounds.size(); ++i) EXPECT_EQ(rounds[i], rounds[1]) << "round " << i;
}

TEST_P(StreamAllocatorTest, BlocksOutliveTheirPool) {
  const PoolId pool = allocator_->CreatePool();
  void* block = Get(3_MiB, kDefaultStream, pool);
  EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  EXPECT_TRUE(allocator_->Owns(block));
  EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->Allocate(1_MiB, {.pool = pool}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->DestroyPool(pool)));
  EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->TrimPool(pool).status()));
  allocator_->Free(block);
  EXPECT_EQ(allocator_->stats().live, 0_B);
}

TEST_P(StreamAllocatorTest, TrimmingAPoolGivesBackWhatIsNotInUse) {
  const PoolId pool = allocator_->CreatePool();
  void* kept = Get(6_MiB, kDefaultStream, pool);
  void* block = Get(30_MiB, kDefaultStream, pool);
  streams_.Queue(kDefaultStream, Nanos(1000), {{block, 30_MiB}});
  allocator_->Free(block);
  EXPECT_GE(allocator_->TrimPool(pool).value(), 30_MiB);
  EXPECT_TRUE(allocator_->Owns(kept));
  allocator_->Free(kept);
}

TEST_P(StreamAllocatorTest, PoolsThatComeAndGoLeaveNothingBehind) {
  for (int i = 0; i < 300; ++i) {
    const PoolId pool = allocator_->CreatePool();
    allocator_->Free(Get(3_MiB, kDefaultStream, pool));
    EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  }
  EXPECT_LE(allocator_->stats().arenas, 3);
}

TEST_P(StreamAllocatorTest, TheHitPathMakesNoDriverCall) {
  const StreamId other = streams_.CreateStream();
  std::vector<void*> blocks;
  for (int round = 0; round < 5; ++round) {
    const int64_t calls = device_.calls() + streams_.counters().records;
    for (StreamId stream : {kDefaultStream, other}) {
      for (Bytes size : {100_B, 30_KiB, 700_KiB, 12_MiB}) blocks.push_back(Get(size, stream));
    }
    for (void* block : blocks) allocator_->Free(block);
    blocks.clear();
    if (round < 2) continue;  // it settles: places are taken where there is memory
    EXPECT_EQ(device_.calls() + streams_.counters().records, calls);
  }
}

TEST_P(StreamAllocatorTest, MemoryMovesInsteadOfGrowing) {
  if (!GetParam().partial_decommit) GTEST_SKIP() << "memory cannot move on this device";
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(Get(4_MiB));
  for (int i = 0; i < 20; i += 2) allocator_->Free(blocks[i]);
  void* large = Get(40_MiB);
  const AllocatorStats stats = allocator_->stats();
  EXPECT_LE(stats.held, 84_MiB) << "10 holes of 4 MiB and 40 MiB in one piece";
  EXPECT_EQ(stats.device_moves > 0, GetParam().move);
  allocator_->Free(large);
}

TEST_P(StreamAllocatorTest, TheHistoryTellsWhatHappenedInItsOrder) {
  allocator_ = std::make_unique<CachingAllocator>(
      &device_,
      CachingAllocator::Options{.budget = 64_MiB, .streams = &streams_, .history_events = 100});
  allocator_->history()->Record(HistoryRing::kAll);
  const StreamId other = streams_.CreateStream();
  void* block = Get(3_MiB);
  Use(block, 3_MiB, other);
  allocator_->Free(block);
  EXPECT_FALSE(allocator_->Allocate(100_MiB).ok());
  streams_.CompleteAll();
  allocator_->Settle();
  std::vector<std::string> words;
  for (const HistoryEvent& event : allocator_->TakeSnapshot().history) {
    words.push_back(Word(event.action));
    EXPECT_TRUE(event.action != HistoryAction::kAlloc || event.size == 3_MiB);
  }
  const char* const obtained = GetParam().partial_decommit ? "segment_map" : "segment_alloc";
  EXPECT_EQ(words, (std::vector<std::string>{obtained, "alloc", "free_requested", "oom",
                                             "free_completed", "snapshot"}));
}

TEST_P(StreamAllocatorTest, AFreeOfAnotherSizeIsFound) {
  void* block = Get(3_MiB);
  void* small = Get(100_B);
  EXPECT_DEATH(allocator_->Free(block, 2_MiB), "with size 2097152, which was allocated with size");
  EXPECT_DEATH(allocator_->Free(small, 90_B), "with size 90, which was allocated with size 100");
  allocator_->Free(block, 3_MiB);
  allocator_->Free(small, 100_B);
}

TEST_P(StreamAllocatorTest, ASecondFreeIsFoundAlsoWhileTheFirstAwaits) {
  const StreamId other = streams_.CreateStream();
  for (Bytes size : {100_B, 3_MiB}) {
    void* block = Get(size);
    Use(block, size, other);
    allocator_->Free(block);
    EXPECT_DEATH(allocator_->Free(block), "freed twice");
    EXPECT_FALSE(allocator_->Owns(block));
  }
}

}  // namespace
}  // namespace ebbtide
