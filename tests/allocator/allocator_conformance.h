// SPDX-License-Identifier: Apache-2.0
//
// What CachingAllocator must do over every DeviceMemory. To run it over a new device, include this
// header and instantiate both suites:
//
//     INSTANTIATE_TEST_SUITE_P(MyDevice, AllocatorTest, testing::Values(MakeMyDevice));
//     INSTANTIATE_TEST_SUITE_P(MyDevice, AllocatorStressTest, testing::Values(MakeMyDevice));
//
// The device must be able to give 256 MiB. This file holds contract, budget and pressure; random
// loads, threads and fork stand in allocator_stress_conformance.h.

#ifndef EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_CONFORMANCE_H_
#define EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_CONFORMANCE_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/allocator/adds_up.h"

namespace ebbtide {

using namespace ebbtide::literals;
using MakeDevice = std::function<std::unique_ptr<DeviceMemory>()>;

// A device, and whether the allocator over it plans ahead.
struct AllocatorSetup {
  template <typename Make>
  requires std::is_invocable_r_v<std::unique_ptr<DeviceMemory>, Make> AllocatorSetup(
      Make make_device, bool plans = false)
      : make(make_device), planned(plans) {}

  MakeDevice make;
  bool planned;
};

// A device and an allocator over it that is checked from all sides when the test ends.
class AllocatorFixture : public testing::TestWithParam<AllocatorSetup> {
 protected:
  AllocatorFixture() : device_(GetParam().make()) { Make(Bytes::Max()); }
  ~AllocatorFixture() override { allocator_->CheckInvariants(); }

  void Make(Bytes budget) {
    allocator_ = std::make_unique<CachingAllocator>(
        device_.get(), CachingAllocator::Options{.budget = budget, .planned = GetParam().planned});
  }
  void* Get(Bytes size) {
    absl::StatusOr<void*> block = allocator_->Allocate(size);
    EXPECT_TRUE(block.ok()) << block.status().ToString();
    return block.ok() ? *block : nullptr;
  }
  bool Fails(Bytes size) { return absl::IsResourceExhausted(allocator_->Allocate(size).status()); }
  bool partial() const { return device_->supports_partial_decommit(); }

  std::unique_ptr<DeviceMemory> device_;
  std::unique_ptr<CachingAllocator> allocator_;
};

class AllocatorTest : public AllocatorFixture {};

TEST_P(AllocatorTest, NothingAskedNothingGiven) {
  EXPECT_EQ(Get(0_B), nullptr);
  allocator_->Free(nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(allocator_->Allocate(Bytes(-1)).status()));
  const AllocatorStats s = allocator_->stats();
  EXPECT_EQ(s.held, 0_B);
  EXPECT_EQ(s.reserved, 0_B);
  EXPECT_EQ(s.allocations, 0);
}

TEST_P(AllocatorTest, BlocksAreAlignedApartAndAsLargeAsTheySay) {
  struct Extent {
    uintptr_t begin, end;
  };
  std::vector<Extent> extents;
  std::vector<void*> blocks;
  int64_t live = 0;
  for (int64_t size :
       {1,    63,    64,    65,    500,    512,    513,    1000,    4095,    4096,    4097,
        5000, 65535, 65536, 65537, 262143, 262144, 262145, 1000000, 3000000, 20971520}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      void* block = Get(Bytes(size));
      const Bytes usable = allocator_->SizeOf(block);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
      EXPECT_GE(usable.count(), size);
      EXPECT_LE(usable.count(), std::max<int64_t>(64, size + size / 4 + 63));
      EXPECT_TRUE(allocator_->Owns(block));
      EXPECT_FALSE(allocator_->Owns(static_cast<char*>(block) + 1));
      if (device_->is_host_accessible()) memset(block, 7, usable.count());
      const auto begin = reinterpret_cast<uintptr_t>(block);
      extents.push_back({begin, begin + usable.count()});
      blocks.push_back(block);
      live += usable.count();
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) EXPECT_LE(extents[i - 1].end, extents[i].begin);
  EXPECT_EQ(allocator_->stats().live, Bytes(live));
  ExpectAddsUp(allocator_->stats());
  for (void* block : blocks) allocator_->Free(block);
  EXPECT_EQ(allocator_->stats().live, 0_B);
  EXPECT_FALSE(allocator_->Owns(blocks.back()));
}

TEST_P(AllocatorTest, AnAlignmentThatIsAskedForIsKept) {
  std::vector<void*> blocks;
  for (const size_t alignment : {1, 64, 128, 256, 512, 4096, 1 << 16, 2 << 20}) {
    for (const int64_t size : {1, 100, 600, 4096, 5000, 300000, 3000000}) {
      const absl::StatusOr<void*> block =
          allocator_->Allocate(Bytes(size), {.alignment = alignment});
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*block) % alignment, 0u) << size;
      EXPECT_GE(allocator_->SizeOf(*block), Bytes(size));
      EXPECT_TRUE(allocator_->Owns(*block));
      blocks.push_back(*block);
    }
  }
  for (const size_t alignment : {size_t{65}, size_t{96}, size_t{4} << 20, ~size_t{0}}) {
    const absl::Status status = allocator_->Allocate(100_B, {.alignment = alignment}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << alignment << status;
  }
  ExpectAddsUp(allocator_->stats());
  for (void* block : blocks) allocator_->Free(block);
  EXPECT_EQ(allocator_->stats().live, 0_B);
}

TEST_P(AllocatorTest, FreedMemoryIsReusedAtOnce) {
  for (Bytes size : {64_B, 1000_B, 4096_B, 5000_B, 100_KiB, 3_MiB, 40_MiB}) {
    void* first = Get(size);
    allocator_->Free(first);
    EXPECT_EQ(Get(size), first) << size;
    allocator_->Free(first);
  }
}

TEST_P(AllocatorTest, CommittedMemoryIsReusedBeforeMoreIsTaken) {
  void* a = Get(24_MiB);
  void* guard = Get(1_MiB);
  allocator_->Free(a);
  const AllocatorStats before = allocator_->stats();
  void* b = Get(10_MiB);
  void* c = Get(14_MiB);
  EXPECT_EQ(allocator_->stats().held, before.held);
  EXPECT_EQ(allocator_->stats().device_commits, before.device_commits);
  for (void* block : {b, c, guard}) allocator_->Free(block);
}

TEST_P(AllocatorTest, NeighboursMergeInAnyOrderOfFrees) {
  std::vector<int> order = {0, 1, 2, 3, 4};
  Make(64_MiB);
  do {
    void* whole = Get(30_MiB);
    allocator_->Free(whole);
    void* parts[5];
    for (void*& part : parts) part = Get(6_MiB);
    for (int i : order) allocator_->Free(parts[i]);
    ASSERT_EQ(Get(30_MiB), whole);
    allocator_->Free(whole);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(AllocatorTest, ImpossibleSizesFailCleanly) {
  OutOfMemory details;
  for (Bytes size :
       {Bytes::Max(), Bytes::Max() - Bytes(1), Bytes(int64_t{1} << 60), Bytes(int64_t{1} << 46)}) {
    const absl::Status status = allocator_->Allocate(size, &details).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << size << status.ToString();
    EXPECT_EQ(details.asked, size);
  }
  EXPECT_EQ(allocator_->stats().failures, 4);
  allocator_->Free(Get(1_MiB));
}

TEST_P(AllocatorTest, AllOfTheCacheCanBeGivenBack) {
  std::vector<void*> blocks;
  for (int i = 1; i < 400; ++i) blocks.push_back(Get(Bytes(i * i * 3)));
  for (void* block : blocks) allocator_->Free(block);
  const Bytes held = allocator_->stats().held;
  EXPECT_GT(held, 0_B);
  EXPECT_EQ(allocator_->ReleaseCached(Bytes::Max()), held);
  EXPECT_EQ(allocator_->stats().held, 0_B);
  EXPECT_EQ(allocator_->stats().reserved, 0_B);
}

TEST_P(AllocatorTest, ReleaseCachedStopsWhenItIsEnoughAndSparesLiveBlocks) {
  void* keep = Get(20_MiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(Get(20_MiB));
  for (void* block : blocks) allocator_->Free(block);
  if (device_->is_host_accessible()) memset(keep, 5, (20_MiB).count());
  const Bytes held = allocator_->stats().held;
  const Bytes released = allocator_->ReleaseCached(15_MiB);
  EXPECT_GE(released, 15_MiB);
  EXPECT_LE(released, 25_MiB);
  EXPECT_EQ(allocator_->stats().held, held - released);
  allocator_->ReleaseCached(Bytes::Max());
  EXPECT_GE(allocator_->stats().held, 20_MiB);
  if (device_->is_host_accessible()) {
    EXPECT_EQ(static_cast<char*>(keep)[(11_MiB).count()], 5);
  }
  allocator_->Free(keep);
}

TEST_P(AllocatorTest, TheBudgetFillsExactlyAndNotAByteMore) {
  Make(64_MiB);
  void* a = Get(32_MiB);
  void* b = Get(32_MiB);
  EXPECT_EQ(allocator_->stats().held, 64_MiB);
  EXPECT_TRUE(Fails(1_B));
  EXPECT_TRUE(Fails(32_MiB));
  EXPECT_TRUE(Fails(64_MiB + 1_B));
  allocator_->Free(a);
  a = Get(32_MiB);
  allocator_->Free(a);
  allocator_->Free(b);
  allocator_->Free(Get(64_MiB));
  EXPECT_EQ(allocator_->stats().peak_held, 64_MiB);
  ExpectAddsUp(allocator_->stats());
}

TEST_P(AllocatorTest, CachedMemoryMakesRoomForOtherSizes) {
  Make(64_MiB);
  for (Bytes size : {60_MiB, 10_MiB, 3_KiB, 50_MiB, 100_KiB, 33_MiB, 64_MiB}) {
    std::vector<void*> blocks;
    for (Bytes total = size; total <= 60_MiB && blocks.size() < 1000; total += size) {
      blocks.push_back(Get(size));
    }
    for (void* block : blocks) allocator_->Free(block);
    allocator_->CheckInvariants();
  }
  allocator_->Free(Get(64_MiB));
}

TEST_P(AllocatorTest, SmallBlocksInCachesMakeRoomUnderPressure) {
  Make(16_MiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 14 << 8; ++i) blocks.push_back(Get(4_KiB));
  for (void* block : blocks) allocator_->Free(block);
  allocator_->Free(Get(16_MiB));
}

TEST_P(AllocatorTest, FragmentationCostsAddressesNotMemory) {
  if (!partial()) GTEST_SKIP() << "needs partial decommit";
  Make(128_MiB);
  allocator_->Free(Get(110_MiB));
  std::vector<void*> small, keep;
  for (int i = 0; i < 60; ++i) (i % 2 ? keep : small).push_back(Get(Bytes(1 << 20) + 64_KiB));
  for (void* block : small) allocator_->Free(block);
  // 31.9 MiB are live, and each of 30 blocks may hold a part of two granules more.
  const Bytes room = 128_MiB - (1_MiB + 64_KiB) * 30 - device_->granularity() * 2 * 30;
  if (room > 0_B) allocator_->Free(Get(room));
  for (void* block : keep) allocator_->Free(block);
}

TEST_P(AllocatorTest, ABudgetCanBeLoweredAndRaised) {
  void* a = Get(30_MiB);
  allocator_->Free(Get(50_MiB));
  allocator_->set_budget(40_MiB);
  EXPECT_EQ(allocator_->budget(), 40_MiB);
  EXPECT_LE(allocator_->stats().held, 40_MiB);
  EXPECT_TRUE(Fails(20_MiB));
  allocator_->set_budget(20_MiB);
  EXPECT_GE(allocator_->stats().held, 30_MiB);
  EXPECT_TRUE(Fails(1_MiB));
  allocator_->Free(a);
  void* b = Get(20_MiB);
  EXPECT_LE(allocator_->stats().held, 20_MiB);
  allocator_->set_budget(60_MiB);
  void* c = Get(40_MiB);
  allocator_->Free(b);
  allocator_->Free(c);
}

TEST_P(AllocatorTest, PeaksCanBeRestarted) {
  allocator_->Free(Get(40_MiB));
  allocator_->ReleaseCached(Bytes::Max());
  EXPECT_GE(allocator_->stats().peak_live, 40_MiB);
  EXPECT_GE(allocator_->stats().peak_held, 40_MiB);
  allocator_->ResetPeaks();
  EXPECT_EQ(allocator_->stats().peak_live, 0_B);
  EXPECT_EQ(allocator_->stats().peak_held, 0_B);
}

TEST_P(AllocatorTest, OutOfMemorySaysWhatIsKnown) {
  Make(64_MiB);
  void* a = Get(40_MiB);
  OutOfMemory details;
  const absl::Status status = allocator_->Allocate(30_MiB, &details).status();
  EXPECT_EQ(details.asked, 30_MiB);
  EXPECT_EQ(details.budget, 64_MiB);
  EXPECT_EQ(details.live, 40_MiB);
  EXPECT_EQ(details.held, details.live + details.cached);
  EXPECT_EQ(details.device_capacity, device_->capacity());
  EXPECT_FALSE(details.device_exhausted);
  EXPECT_EQ(status.message(), FormatOutOfMemory(details));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("30.00 MiB"));
  allocator_->Free(a);
  allocator_->Free(Get(30_MiB));
}

TEST_P(AllocatorTest, TheHandlerIsAskedWithoutTheLockAndUntilItFits) {
  Make(64_MiB);
  std::vector<void*> victims;
  for (int i = 0; i < 6; ++i) victims.push_back(Get(10_MiB));
  std::vector<MemoryPressure> calls;
  allocator_->SetPressureHandler([&](const MemoryPressure& pressure) {
    calls.push_back(pressure);
    ExpectAddsUp(allocator_->stats());
    if (victims.empty()) return false;
    allocator_->Free(victims.back());
    victims.pop_back();
    return true;
  });
  void* a = Get(25_MiB);
  EXPECT_GE(calls.size(), 3u);
  EXPECT_EQ(calls[0].requested, 25_MiB);
  EXPECT_GE(calls[0].shortfall, 1_B);
  if (partial()) {
    EXPECT_EQ(calls.size(), 3u);  // 21 MiB are missing
    EXPECT_FALSE(calls[0].needs_contiguous);
    EXPECT_LE(calls[0].shortfall, 22_MiB);
    EXPECT_GT(calls[0].shortfall, calls[1].shortfall);
  }
  EXPECT_TRUE(Fails(64_MiB));
  EXPECT_TRUE(victims.empty());
  const auto count = static_cast<int64_t>(calls.size());
  EXPECT_EQ(allocator_->stats().pressure_calls, count);
  EXPECT_TRUE(Fails(65_MiB));  // larger than the budget: nothing is evicted for it
  EXPECT_EQ(allocator_->stats().pressure_calls, count);
  allocator_->Free(a);
}

TEST_P(AllocatorTest, AnAllocationInsideTheHandlerCallsNoHandler) {
  Make(64_MiB);
  void* victim = Get(60_MiB);
  int depth = 0, calls = 0, inner_failures = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    EXPECT_EQ(depth, 0) << "the handler was called from itself";
    ++depth;
    ++calls;
    if (Fails(50_MiB)) ++inner_failures;
    allocator_->Free(Get(1_MiB));  // what fits may be had
    allocator_->Free(victim);
    --depth;
    return true;
  });
  allocator_->Free(Get(40_MiB));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(inner_failures, 1);
}

TEST_P(AllocatorTest, AHandlerThatOnlyClaimsToHelpIsGivenUp) {
  Make(64_MiB);
  void* live = Get(60_MiB);
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    ++calls;
    return true;
  });
  EXPECT_TRUE(Fails(30_MiB));
  EXPECT_EQ(calls, 8);
  allocator_->Free(live);
}

TEST_P(AllocatorTest, WhatBecameFreeWhileTheHandlerGaveUpCounts) {
  Make(64_MiB);
  void* live = Get(60_MiB);
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    allocator_->Free(live);
    return false;
  });
  allocator_->Free(Get(64_MiB));
  allocator_->SetPressureHandler(nullptr);
  live = Get(60_MiB);
  EXPECT_TRUE(Fails(64_MiB));
  allocator_->Free(live);
}

TEST_P(AllocatorTest, ManySmallVictimsAreNotMistakenForNoProgress) {
  Make(32_MiB);
  std::vector<void*> victims;
  for (int i = 0; i < 14 << 9; ++i) victims.push_back(Get(2_KiB));  // 14 MiB
  void* rest = Get(16_MiB);
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    if (victims.empty()) return false;
    allocator_->Free(victims.back());
    victims.pop_back();
    return true;
  });
  void* block = Get(8_MiB);
  EXPECT_NE(block, nullptr);
  EXPECT_LT(victims.size(), 7000u);
  for (void* b : {block, rest}) allocator_->Free(b);
}

TEST_P(AllocatorTest, MisuseStopsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  void* small = Get(100_B);
  void* large = Get(100_KiB);
  int on_stack = 0;
  EXPECT_DEATH(allocator_->Free(&on_stack), "not allocated here");
  EXPECT_DEATH(allocator_->Free(static_cast<char*>(small) + 64), "inside a block");
  EXPECT_DEATH(allocator_->Free(static_cast<char*>(large) + 4096), "not allocated here");
  EXPECT_DEATH(allocator_->Free(reinterpret_cast<void*>(~uintptr_t{0} - 63)), "not allocated here");
  EXPECT_DEATH((void)allocator_->SizeOf(&on_stack), "not a live block");
  allocator_->Free(small);
  allocator_->Free(large);
  EXPECT_DEATH(allocator_->Free(small), "freed twice");
  EXPECT_DEATH(allocator_->Free(large), "freed twice");
  EXPECT_DEATH((void)allocator_->SizeOf(small), "not a live block");
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_CONFORMANCE_H_
