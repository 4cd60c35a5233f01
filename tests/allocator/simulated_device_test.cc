// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_device.h"

#include "tests/allocator/device_memory_conformance.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

std::unique_ptr<DeviceMemory> Make(Bytes granularity, bool partial) {
  return std::make_unique<SimulatedDevice>(SimulatedDevice::Options{
      .capacity = 1_GiB, .granularity = granularity, .partial_decommit = partial});
}

INSTANTIATE_TEST_SUITE_P(Partial2MiB, DeviceMemoryTest,
                         testing::Values([] { return Make(2_MiB, true); }));
INSTANTIATE_TEST_SUITE_P(Partial4KiB, DeviceMemoryTest,
                         testing::Values([] { return Make(4_KiB, true); }));
INSTANTIATE_TEST_SUITE_P(Whole, DeviceMemoryTest,
                         testing::Values([] { return Make(2_MiB, false); }));

TEST(SimulatedDeviceTest, RefusesMoreThanItsCapacity) {
  SimulatedDevice device({.capacity = 8_MiB});
  void* a = device.Reserve(64_MiB).value();
  ASSERT_TRUE(device.Commit(a, 8_MiB).ok());
  char* more = static_cast<char*>(a) + (8_MiB).count();
  EXPECT_TRUE(absl::IsResourceExhausted(device.Commit(more, 2_MiB)));
  EXPECT_EQ(device.committed(), 8_MiB);
  ASSERT_TRUE(device.Decommit(a, 2_MiB).ok());
  EXPECT_TRUE(device.Commit(more, 2_MiB).ok());
  EXPECT_EQ(device.peak_committed(), 8_MiB);
  EXPECT_TRUE(device.Unreserve(a, 64_MiB).ok());
  EXPECT_EQ(device.committed(), 0_B);
}

TEST(SimulatedDeviceTest, WithoutPartialDecommitReservingCounts) {
  SimulatedDevice device({.capacity = 8_MiB, .partial_decommit = false});
  void* a = device.Reserve(6_MiB).value();
  EXPECT_EQ(device.committed(), 6_MiB);
  EXPECT_TRUE(absl::IsResourceExhausted(device.Reserve(4_MiB).status()));
  EXPECT_TRUE(device.Unreserve(a, 6_MiB).ok());
}

TEST(SimulatedDeviceTest, FailsAtTheNthCallOnceOrForEver) {
  SimulatedDevice device({});
  void* a = device.Reserve(8_MiB).value();
  device.FailAt(2);
  EXPECT_TRUE(device.Commit(a, 2_MiB).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(device.Decommit(a, 2_MiB)));
  EXPECT_TRUE(device.Decommit(a, 2_MiB).ok());
  device.FailAt(1, /*for_ever=*/true);
  EXPECT_FALSE(device.Reserve(2_MiB).ok());
  EXPECT_FALSE(device.Commit(a, 2_MiB).ok());
  device.FailAt(0);
  EXPECT_TRUE(device.Commit(a, 2_MiB).ok());
  EXPECT_EQ(device.calls(), 7);
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
}

TEST(SimulatedDeviceDeathTest, StopsWhoBreaksTheRules) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SimulatedDevice device({});
        (void)device.Reserve(2_MiB);
      },
      "never unreserved");
  SimulatedDevice device({});
  void* a = device.Reserve(8_MiB).value();
  ASSERT_TRUE(device.Commit(a, 4_MiB).ok());
  EXPECT_DEATH((void)device.Commit(a, 2_MiB), "committed twice");
  EXPECT_DEATH((void)device.Decommit(static_cast<char*>(a) + (4_MiB).count(), 2_MiB),
               "not committed");
  EXPECT_DEATH((void)device.Unreserve(a, 4_MiB), "not what Reserve returned");
  EXPECT_DEATH((void)device.Commit(a, 64_MiB), "outside of any reserved range");
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
}

}  // namespace
}  // namespace ebbtide
