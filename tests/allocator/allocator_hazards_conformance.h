// SPDX-License-Identifier: Apache-2.0
//
// The third part of allocator_conformance.h: what users of allocators have been bitten by, each a
// test that is named by the hazard, and the cheap checks that are always on. Instantiate it beside
// the other two.
//
// Threads: the tests start their own and join them. Ownership: the fixture owns device and
// allocator.

#ifndef EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_HAZARDS_CONFORMANCE_H_
#define EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_HAZARDS_CONFORMANCE_H_

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/allocator_conformance.h"

namespace ebbtide {

class AllocatorHazardTest : public AllocatorFixture {
 protected:
  AllocatorHazardTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  void* GetIn(PoolId pool, Bytes size) {
    return allocator_->Allocate(size, {.pool = pool}).value();
  }
  int64_t DeviceCalls() const {
    const AllocatorStats stats = allocator_->stats();
    return stats.device_commits + stats.device_decommits + stats.device_moves;
  }
  static void InThreads(int count, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
  }
};

using AllocatorHazardDeathTest = AllocatorHazardTest;

TEST_P(AllocatorHazardTest, RoundingIsSeenInTheNumbersAndIsAsDocumented) {
  struct {
    int64_t asked, live;
  } const sizes[] = {{1, 64},      {64, 64},     {65, 128},          {520, 640},
                     {4000, 4096}, {4097, 4160}, {300'001, 300'032}, {3 << 20, 3 << 20}};
  Bytes asked, live;
  std::vector<void*> blocks;
  for (const auto& size : sizes) {
    blocks.push_back(Get(Bytes(size.asked)));
    asked += Bytes(size.asked);
    live += Bytes(size.live);
    EXPECT_EQ(allocator_->SizeOf(blocks.back()), Bytes(size.live)) << size.asked;
    EXPECT_EQ(allocator_->stats().asked, asked) << size.asked;
    EXPECT_EQ(allocator_->stats().live, live) << size.asked;
  }
  for (void* block : blocks) allocator_->Free(block);
}

TEST_P(AllocatorHazardTest, SmallRequestsShareTheirMemory) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(Get(200_KiB));
  EXPECT_LE(allocator_->stats().small.held.current, 2_MiB);
  EXPECT_EQ(allocator_->stats().large.held.current, 0_B);
  for (void* block : blocks) allocator_->Free(block);
}

TEST_P(AllocatorHazardTest, ABudgetOfNothingRefusesEverythingUntilItIsRaised) {
  Make(0_B);
  EXPECT_TRUE(Fails(1_B));
  EXPECT_TRUE(Fails(10_MiB));
  EXPECT_EQ(Get(0_B), nullptr) << "nothing costs nothing";
  EXPECT_EQ(allocator_->stats().held, 0_B);
  EXPECT_EQ(allocator_->stats().peak_held, 0_B);
  allocator_->set_budget(64_MiB);
  allocator_->Free(Get(10_MiB));
  allocator_->set_budget(0_B);
  EXPECT_EQ(allocator_->stats().held, 0_B) << "the cache is held too";
  EXPECT_TRUE(Fails(1_B));
}

TEST_P(AllocatorHazardTest, HalfIsHeldTheOtherHalfFailsUntilTheFirstIsFreed) {
  Make(64_MiB);
  void* half = Get(32_MiB);
  void* rest = Get(1_MiB);
  EXPECT_TRUE(Fails(32_MiB));
  allocator_->Free(half);
  half = Get(32_MiB);
  allocator_->Free(half);
  allocator_->Free(rest);
}

TEST_P(AllocatorHazardTest, AllOfTheBudgetIsReachedAfterGrowingInSteps) {
  Make(64_MiB);
  std::vector<void*> steps;
  for (int i = 0; i < 64; ++i) steps.push_back(Get(1_MiB));
  EXPECT_EQ(allocator_->stats().held, 64_MiB);
  for (size_t i = 0; i < steps.size(); i += 2) allocator_->Free(steps[i]);
  for (size_t i = 1; i < steps.size(); i += 2) allocator_->Free(steps[i]);
  void* halves[2] = {Get(32_MiB), Get(32_MiB)};
  for (void* block : halves) allocator_->Free(block);
  allocator_->Free(Get(64_MiB));
}

TEST_P(AllocatorHazardTest, AnExceptionOfTheHandlerPassesThroughAndTheAllocatorGoesOn) {
  Make(16_MiB);
  void* live = Get(12_MiB);
  allocator_->SetPressureHandler(
      [](const MemoryPressure&) -> bool { throw std::runtime_error("the handler's own"); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((void)allocator_->Allocate(12_MiB), std::runtime_error) << "call " << i;
  }
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    allocator_->Free(std::exchange(live, nullptr));
    return ++calls == 1;
  });
  allocator_->Free(Get(12_MiB));
  EXPECT_EQ(calls, 1) << "it counts as running inside of the one that threw";
}

TEST_P(AllocatorHazardTest, AHandlerMayBeSetBeforeAnythingElse) {
  Make(4_MiB);
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) { return ++calls, false; });
  allocator_->SetPressureHandler(nullptr);
  EXPECT_TRUE(Fails(5_MiB));
  EXPECT_EQ(calls, 0);
}

TEST_P(AllocatorHazardTest, OutOfMemoryTellsWhatPrivatePoolsKeep) {
  Make(64_MiB);
  const PoolId pool = allocator_->CreatePool();
  void* kept = GetIn(pool, 20_MiB);
  allocator_->Free(GetIn(pool, 30_MiB));
  allocator_->Free(Get(2_MiB));
  OutOfMemory details;
  const absl::Status status = allocator_->Allocate(30_MiB, &details).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(details.live, 20_MiB);
  EXPECT_GE(details.kept_by_pools, 30_MiB);
  EXPECT_LE(details.kept_by_pools, details.cached);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("of it kept by private pools"));
  allocator_->Free(kept);
  EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  allocator_->Free(Get(60_MiB));
}

TEST_P(AllocatorHazardTest, PoolNumbersAreUniqueAcrossThreadsAndAllocators) {
  const std::unique_ptr<DeviceMemory> other_device = GetParam().make();
  CachingAllocator other(other_device.get());
  std::mutex mutex;
  std::set<PoolId> pools;
  InThreads(4, [&](int t) {
    for (int i = 0; i < 100; ++i) {
      const PoolId pool = (t % 2 == 0 ? *allocator_ : other).CreatePool();
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_TRUE(pools.insert(pool).second) << "twice: " << pool;
    }
  });
  EXPECT_FALSE(pools.contains(kSharedPool));
}

TEST_P(AllocatorHazardTest, APoolOfAnotherAllocatorOrADestroyedOneIsRefused) {
  const std::unique_ptr<DeviceMemory> other_device = GetParam().make();
  CachingAllocator other(other_device.get());
  const PoolId foreign = other.CreatePool();
  const PoolId destroyed = allocator_->CreatePool();
  EXPECT_TRUE(allocator_->DestroyPool(destroyed).ok());
  for (const PoolId pool : {foreign, destroyed, PoolId{1} << 60}) {
    for (const Bytes size : {100_B, 3_MiB}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->Allocate(size, {.pool = pool}).status()));
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->TrimPool(pool).status()));
    EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->DestroyPool(pool)));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(allocator_->DestroyPool(kSharedPool)));
}

TEST_P(AllocatorHazardTest, ThreadsEmptyTheCacheWhileOthersUsePools) {
  Make(128_MiB);
  InThreads(4, [&](int t) {
    for (int i = 0; i < 60; ++i) {
      const PoolId pool = allocator_->CreatePool();
      void* in_pool = GetIn(pool, Bytes((1 + t) * 300'000));
      void* shared = Get(Bytes((1 + t) * 500'000));
      if (device_->is_host_accessible()) memset(in_pool, t, 300'000);
      allocator_->Free(shared);
      allocator_->ReleaseCached(Bytes::Max());
      EXPECT_TRUE(allocator_->TrimPool(pool).ok());
      if (device_->is_host_accessible()) {
        EXPECT_EQ(static_cast<char*>(in_pool)[299'999], t) << "what is in use was given back";
      }
      EXPECT_TRUE(allocator_->Owns(in_pool));
      if (i % 2 == 0) allocator_->Free(in_pool);
      EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
      if (i % 2 != 0) allocator_->Free(in_pool);
    }
  });
  allocator_->ReleaseCached(Bytes::Max());
  EXPECT_EQ(allocator_->stats().held, 0_B);
}

TEST_P(AllocatorHazardTest, SnapshotsAddUpWhileThreadsWork) {
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) {
      const Snapshot snapshot = allocator_->TakeSnapshot();
      const absl::Status status = ValidateSnapshot(snapshot);
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  InThreads(3, [&](int t) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4000; ++i) {
      blocks.push_back(Get(Bytes(1 + (i * 7919 + t) % (i % 9 == 0 ? 900'000 : 9'000))));
      if (blocks.size() < 12) continue;
      for (void* block : blocks) allocator_->Free(block);
      blocks.clear();
    }
    for (void* block : blocks) allocator_->Free(block);
  });
  stop = true;
  observer.join();
}

TEST_P(AllocatorHazardTest, AThreadThatEndsLeavesItsCachesToOthers) {
  const auto work = [&](int) {
    std::vector<void*> blocks;
    for (int i = 0; i < 500; ++i) blocks.push_back(Get(Bytes(1 + i * 8)));
    for (void* block : blocks) allocator_->Free(block);
  };
  for (int i = 0; i < 64; ++i) InThreads(1, work);
  const Bytes held = allocator_->stats().held;
  for (int i = 0; i < 200; ++i) InThreads(1, work);
  const Bytes later = allocator_->stats().held;
  EXPECT_LE(later, held + 1_MiB) << "ended threads keep memory";
  EXPECT_EQ(allocator_->ReleaseCached(Bytes::Max()), later);
}

// At a budget of 1/0.97 of what is live, and the parts of granules that blocks may hold in vain.
TEST_P(AllocatorHazardTest, ASteadyProgramNearItsBudgetNeitherFailsNorCallsTheDeviceAllTheTime) {
  const auto step = [&] {
    std::vector<void*> kept;
    for (int i = 0; i < 24; ++i) {
      void* scratch = Get(Bytes(1'000'000 + 40'000 * i));
      kept.push_back(Get(Bytes(2'000'000 - 30'000 * i)));
      allocator_->Free(scratch);
    }
    for (void* block : kept) allocator_->Free(block);
  };
  step();
  Make(RoundUp(allocator_->stats().peak_live * 100 / 97, device_->granularity()) +
       (partial() ? device_->granularity() * 48 : 20_MiB));
  for (int i = 0; i < 12; ++i) step();
  const int64_t before = DeviceCalls();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_LE(DeviceCalls() - before, 480) << "more than one for each request";
  EXPECT_EQ(allocator_->stats().failures, 0);
}

TEST_P(AllocatorHazardDeathTest, ABudgetBelowNothingIsAMistake) {
  EXPECT_DEATH(allocator_->set_budget(Bytes(-1)), "a budget of -1 bytes");
  EXPECT_DEATH(Make(Bytes(-5)), "a budget of -5 bytes");
}

TEST_P(AllocatorHazardDeathTest, ASecondFreeIsFoundWhateverCameBetween) {
  for (const Bytes size : {100_B, 5000_B, 300_KiB, 30_MiB}) {
    void* block = Get(size);
    allocator_->Free(block);
    EXPECT_DEATH(allocator_->Free(block), "freed twice") << size;
    EXPECT_DEATH(allocator_->Free(block, size), "freed twice") << size << " with its size";
    allocator_->ReleaseCached(Bytes::Max());
    EXPECT_DEATH(allocator_->Free(block), "freed twice") << size << " given back";
    EXPECT_FALSE(allocator_->Owns(block));
  }
}

TEST_P(AllocatorHazardDeathTest, OfTwoThreadsThatFreeABlockOneIsStopped) {
  for (const Bytes size : {100_B, 300_KiB}) {
    EXPECT_DEATH(
        {
          void* block = Get(size);
          InThreads(2, [&](int) { allocator_->Free(block); });
        },
        "freed twice");
  }
}

TEST_P(AllocatorHazardDeathTest, AFreeWithAnotherSizeTellsBoth) {
  void* small = Get(100_B);
  void* large = Get(300_KiB);
  EXPECT_DEATH(allocator_->Free(small, 101_B), "with size 101, which was allocated with size 100");
  EXPECT_DEATH(allocator_->Free(large, 1_B), "with size 1, which was allocated with size 307200");
  EXPECT_DEATH(allocator_->Free(large, 307'264_B), "which was allocated with size 307200")
      << "the usable size is another one";
  allocator_->Free(small, 100_B);
  allocator_->Free(large, 300_KiB);
}

TEST_P(AllocatorHazardDeathTest, ABlockOfAnotherAllocatorIsForeign) {
  const std::unique_ptr<DeviceMemory> other_device = GetParam().make();
  CachingAllocator other(other_device.get());
  for (const Bytes size : {100_B, 300_KiB}) {
    void* unaligned = reinterpret_cast<void*>(uintptr_t{0x1234567});
    EXPECT_DEATH(allocator_->Free(unaligned), "not allocated here");
    // Simulated devices give equal addresses: that of a block which this allocator lacks.
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(other.Allocate(size).value());
    EXPECT_FALSE(allocator_->Owns(blocks[2]));
    EXPECT_FALSE(allocator_->Find(blocks[2]).has_value());
    EXPECT_FALSE(allocator_->RecordUse(blocks[2], 7));
    EXPECT_EQ(allocator_->Describe(blocks[2]), "");
    EXPECT_DEATH(allocator_->Free(blocks[2]), "not allocated here");
    EXPECT_DEATH((void)allocator_->SizeOf(blocks[2]), "not a live block");
    for (void* block : blocks) other.Free(block);
  }
}

TEST_P(AllocatorHazardDeathTest, AnAllocatorInAStaticMayOutliveMain) {
  EXPECT_EXIT(
      {
        static std::unique_ptr<DeviceMemory> device = GetParam().make();
        static CachingAllocator allocator(device.get());
        static void* block = allocator.Allocate(3_MiB).value();
        std::atexit([] { allocator.Free(block); });
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        // Never destroyed, and used by what is destroyed last.
        static auto* const device = GetParam().make().release();
        static auto* const allocator = new CachingAllocator(device);
        struct Late {
          void* block = allocator->Allocate(100_B).value();
          ~Late() { allocator->Free(block); }
        };
        static thread_local Late late;
        EXPECT_NE(late.block, nullptr);
        std::exit(8);
      },
      testing::ExitedWithCode(8), "");
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_HAZARDS_CONFORMANCE_H_
