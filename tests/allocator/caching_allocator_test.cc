// SPDX-License-Identifier: Apache-2.0
//
// The conformance suites over each device that is here, and what only one kind of device can show.

#include "allocator/caching_allocator.h"

#include <vector>

#include "allocator/host_memory.h"
#include "allocator/simulated_device.h"
#include "tests/allocator/allocator_conformance.h"
#include "tests/allocator/allocator_hazards_conformance.h"
#include "tests/allocator/allocator_stress_conformance.h"

namespace ebbtide {
namespace {

std::unique_ptr<DeviceMemory> MakeHost() { return std::make_unique<HostMemory>(); }

std::unique_ptr<DeviceMemory> MakeSimulated(Bytes granularity, bool partial) {
  return std::make_unique<SimulatedDevice>(SimulatedDevice::Options{
      .capacity = 512_MiB, .granularity = granularity, .partial_decommit = partial});
}
std::unique_ptr<DeviceMemory> MakeFine() { return MakeSimulated(4_KiB, true); }
std::unique_ptr<DeviceMemory> MakePages() { return MakeSimulated(2_MiB, true); }
std::unique_ptr<DeviceMemory> MakeWhole() { return MakeSimulated(2_MiB, false); }

INSTANTIATE_TEST_SUITE_P(Host, AllocatorTest, testing::Values(MakeHost));
INSTANTIATE_TEST_SUITE_P(Fine, AllocatorTest, testing::Values(MakeFine));
INSTANTIATE_TEST_SUITE_P(Pages, AllocatorTest, testing::Values(MakePages));
INSTANTIATE_TEST_SUITE_P(Whole, AllocatorTest, testing::Values(MakeWhole));
INSTANTIATE_TEST_SUITE_P(PagesPlanned, AllocatorTest,
                         testing::Values(AllocatorSetup(MakePages, true)));
INSTANTIATE_TEST_SUITE_P(WholePlanned, AllocatorTest,
                         testing::Values(AllocatorSetup(MakeWhole, true)));

INSTANTIATE_TEST_SUITE_P(Host, AllocatorHazardTest, testing::Values(MakeHost));
INSTANTIATE_TEST_SUITE_P(Fine, AllocatorHazardTest, testing::Values(MakeFine));
INSTANTIATE_TEST_SUITE_P(Pages, AllocatorHazardTest, testing::Values(MakePages));
INSTANTIATE_TEST_SUITE_P(Whole, AllocatorHazardTest, testing::Values(MakeWhole));

INSTANTIATE_TEST_SUITE_P(Host, AllocatorHazardDeathTest, testing::Values(MakeHost));
INSTANTIATE_TEST_SUITE_P(Fine, AllocatorHazardDeathTest, testing::Values(MakeFine));
INSTANTIATE_TEST_SUITE_P(Pages, AllocatorHazardDeathTest, testing::Values(MakePages));
INSTANTIATE_TEST_SUITE_P(Whole, AllocatorHazardDeathTest, testing::Values(MakeWhole));

INSTANTIATE_TEST_SUITE_P(Host, AllocatorStressTest, testing::Values(MakeHost));
INSTANTIATE_TEST_SUITE_P(Fine, AllocatorStressTest, testing::Values(MakeFine));
INSTANTIATE_TEST_SUITE_P(Pages, AllocatorStressTest, testing::Values(MakePages));
INSTANTIATE_TEST_SUITE_P(Whole, AllocatorStressTest, testing::Values(MakeWhole));
INSTANTIATE_TEST_SUITE_P(HostPlanned, AllocatorStressTest,
                         testing::Values(AllocatorSetup(MakeHost, true)));
INSTANTIATE_TEST_SUITE_P(WholePlanned, AllocatorStressTest,
                         testing::Values(AllocatorSetup(MakeWhole, true)));

// The budget may be far above what the device has: then the device sets the limit.
TEST(CachingAllocatorTest, AFullDeviceIsPressureToo) {
  for (bool partial : {true, false}) {
    SimulatedDevice device({.capacity = 64_MiB, .partial_decommit = partial});
    CachingAllocator allocator(&device);
    void* victim = allocator.Allocate(40_MiB).value();
    OutOfMemory details;
    EXPECT_FALSE(allocator.Allocate(30_MiB, &details).ok());
    EXPECT_TRUE(details.device_exhausted);
    allocator.SetPressureHandler([&](const MemoryPressure& pressure) {
      EXPECT_GE(pressure.shortfall, 1_B);
      allocator.Free(victim);
      return true;
    });
    void* block = allocator.Allocate(30_MiB).value();
    allocator.Free(block);
    EXPECT_EQ(device.committed(), allocator.stats().held);
    allocator.CheckInvariants();
  }
}

// A U-Net's largest scratch block once missed its budget by what lay in partly used granules.
TEST(CachingAllocatorTest, ABlockThatStaysCostsItsSizeAndAtMostAPageAtEachEnd) {
  HostMemory device;
  CachingAllocator allocator(&device, {.budget = 64_MiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(allocator.Allocate(Bytes(5000 + i * 700)).value());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 4 != 0) allocator.Free(blocks[i]);
  }
  const AllocatorStats before = allocator.stats();
  const Bytes lost = device.granularity() * (2 * before.live_blocks + 1);
  void* large = allocator.Allocate(64_MiB - before.live - lost).value();
  EXPECT_LE(allocator.stats().held, 64_MiB);
  allocator.Free(large);
  for (size_t i = 0; i < blocks.size(); i += 4) allocator.Free(blocks[i]);
}

TEST(CachingAllocatorTest, WholeSegmentsSayWhenOnlyContiguityIsMissing) {
  SimulatedDevice device({.capacity = 512_MiB, .partial_decommit = false});
  CachingAllocator allocator(&device, {.budget = 40_MiB});
  void* blocks[10];
  for (void*& block : blocks) block = allocator.Allocate(4_MiB).value();
  for (int i = 1; i < 10; i += 2) allocator.Free(blocks[i]);
  bool contiguous = false;
  allocator.SetPressureHandler([&](const MemoryPressure& pressure) {
    contiguous = pressure.needs_contiguous;
    return false;
  });
  OutOfMemory details;
  EXPECT_FALSE(allocator.Allocate(12_MiB, &details).ok());
  EXPECT_TRUE(contiguous);
  EXPECT_TRUE(details.needs_contiguous);
  for (int i = 0; i < 10; i += 2) allocator.Free(blocks[i]);
  allocator.Free(allocator.Allocate(40_MiB).value());
}

// Hazard: asking a driver how much memory there is takes milliseconds.
TEST(CachingAllocatorTest, TheDeviceIsAskedOnceHowMuchItHas) {
  class CountingMemory : public HostMemory {
   public:
    Bytes capacity() const override { return ++asked_, HostMemory::capacity(); }
    mutable int asked_ = 0;
  } device;
  CachingAllocator allocator(&device, {.budget = 32_MiB});
  for (int i = 0; i < 50; ++i) {
    void* blocks[2] = {allocator.Allocate(20_MiB).value(), allocator.Allocate(100_B).value()};
    for (void* block : blocks) allocator.Free(block);
    allocator.ReleaseCached(Bytes::Max());
  }
  EXPECT_EQ(device.asked_, 1);
}

TEST(CachingAllocatorTest, SameRequestsSameAddresses) {
  std::vector<std::vector<void*>> runs;
  for (int run = 0; run < 2; ++run) {
    SimulatedDevice device({});
    CachingAllocator allocator(&device, {.budget = 64_MiB});
    std::vector<void*> blocks;
    for (int i = 0; i < 500; ++i) {
      blocks.push_back(allocator.Allocate(Bytes(1 + i * 7919 % 90000)).value());
      if (i % 3 == 0) {
        allocator.Free(blocks[i / 3]);
      }
    }
    runs.push_back(blocks);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

}  // namespace
}  // namespace ebbtide
