// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_device.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tests/allocator/device_memory_conformance.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

MakeDevice Make(SimulatedDevice::Options options) {
  return [options] { return std::make_unique<SimulatedDevice>(options); };
}

INSTANTIATE_TEST_SUITE_P(Partial2MiB, DeviceMemoryTest, testing::Values(Make({})));
INSTANTIATE_TEST_SUITE_P(Partial4KiB, DeviceMemoryTest,
                         testing::Values(Make({.granularity = 4_KiB, .large_piece = 48_KiB})));
INSTANTIATE_TEST_SUITE_P(Whole, DeviceMemoryTest,
                         testing::Values(Make({.partial_decommit = false})));
INSTANTIATE_TEST_SUITE_P(Moving, DeviceMemoryTest,
                         testing::Values(Make({.large_piece = 32_MiB, .move = true})));
INSTANTIATE_TEST_SUITE_P(MovingBytes, DeviceMemoryTest,
                         testing::Values(Make({.granularity = 64_KiB,
                                               .large_piece = 1_MiB,
                                               .move = true,
                                               .with_bytes = true})));
INSTANTIATE_TEST_SUITE_P(WholeBytes, DeviceMemoryTest,
                         testing::Values(Make({.partial_decommit = false, .with_bytes = true})));

void* At(void* address, Bytes offset) { return static_cast<char*>(address) + offset.count(); }

TEST(SimulatedDeviceTest, RefusesMoreThanItsCapacity) {
  SimulatedDevice device({.capacity = 8_MiB});
  void* a = device.Reserve(64_MiB).value();
  ASSERT_TRUE(device.Commit(a, 8_MiB).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(device.Commit(At(a, 8_MiB), 2_MiB)));
  EXPECT_EQ(device.committed(), 8_MiB);
  ASSERT_TRUE(device.Decommit(a, 2_MiB).ok());
  EXPECT_TRUE(device.Commit(At(a, 8_MiB), 2_MiB).ok());
  EXPECT_EQ(device.peak_committed(), 8_MiB);
  EXPECT_TRUE(device.IsCommitted(At(a, 2_MiB), 8_MiB));
  EXPECT_FALSE(device.IsCommitted(a, 8_MiB));
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

TEST(SimulatedDeviceTest, MovingNeedsNoRoomOnTheDevice) {
  SimulatedDevice device({.capacity = 8_MiB, .move = true});
  void* a = device.Reserve(8_MiB).value();
  void* b = device.Reserve(8_MiB).value();
  ASSERT_TRUE(device.Commit(a, 8_MiB, 4_MiB).ok());
  ASSERT_TRUE(device.Move(At(a, 4_MiB), b, 4_MiB).ok());
  EXPECT_EQ(device.committed(), 8_MiB);
  EXPECT_EQ(device.peak_committed(), 8_MiB);
  EXPECT_TRUE(device.Unreserve(b, 8_MiB).ok());
  EXPECT_EQ(device.committed(), 4_MiB);
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
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
  EXPECT_FALSE(device.Unreserve(a, 8_MiB).ok());
  device.FailAt(0);
  EXPECT_TRUE(device.Commit(a, 2_MiB).ok());
  EXPECT_EQ(device.calls(), 8);
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
}

TEST(SimulatedDeviceTest, FailsAtTheNthCallOfOneKind) {
  SimulatedDevice device({.move = true});
  FailureInjector* failures = device.failures();
  void* a = device.Reserve(8_MiB).value();
  failures->FailAt(DriverCall::kCommit, 2);
  EXPECT_TRUE(device.Commit(a, 2_MiB).ok());
  EXPECT_TRUE(device.Decommit(a, 2_MiB).ok());
  EXPECT_EQ(device.Commit(a, 2_MiB).message(), "injected failure of Commit");
  EXPECT_TRUE(device.Commit(a, 2_MiB).ok());
  failures->FailAt(DriverCall::kMove, 1, /*for_ever=*/true);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(device.Move(a, At(a, 4_MiB), 2_MiB).ok());
  EXPECT_TRUE(device.Commit(At(a, 4_MiB), 2_MiB).ok());
  failures->FailAt(DriverCall::kUnreserve, 1);
  EXPECT_FALSE(device.Unreserve(a, 8_MiB).ok());
  EXPECT_TRUE(device.IsCommitted(a, 2_MiB));
  failures->FailAt(DriverCall::kReserve, 1);
  EXPECT_FALSE(device.Reserve(2_MiB).ok());
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
  EXPECT_EQ(failures->calls(DriverCall::kCommit), 4);
  EXPECT_EQ(failures->calls(DriverCall::kMove), 3);
  EXPECT_EQ(failures->calls(DriverCall::kRecord), 0);
  EXPECT_EQ(failures->calls(), 12);
}

// What fails must leave everything as it was: on a device with bytes, these too.
TEST(SimulatedDeviceTest, AFailedCallChangesNothing) {
  for (bool with_bytes : {false, true}) {
    SimulatedDevice device({.move = true, .with_bytes = with_bytes});
    void* a = device.Reserve(8_MiB).value();
    ASSERT_TRUE(device.Commit(a, 2_MiB).ok());
    if (with_bytes) memset(a, 7, (2_MiB).count());
    device.FailAt(1, /*for_ever=*/true);
    EXPECT_FALSE(device.Commit(At(a, 2_MiB), 2_MiB).ok());
    EXPECT_FALSE(device.Move(a, At(a, 2_MiB), 2_MiB).ok());
    EXPECT_FALSE(device.Decommit(a, 2_MiB).ok());
    EXPECT_FALSE(device.Unreserve(a, 8_MiB).ok());
    device.FailAt(0);
    EXPECT_EQ(device.committed(), 2_MiB);
    EXPECT_FALSE(device.IsCommitted(At(a, 2_MiB), 2_MiB));
    if (with_bytes) {
      EXPECT_EQ(static_cast<char*>(a)[(1_MiB).count()], 7);
    }
    EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
  }
}

TEST(SimulatedDeviceTest, TheClockTellsWhatADriverWouldHaveTaken) {
  const DriverLatency a100 = DriverLatency::A100();
  SimulatedDevice device({.large_piece = 32_MiB, .move = true, .latency = a100});
  void* a = device.Reserve(1_GiB).value();
  EXPECT_EQ(device.now(), a100.reserve);
  auto taken = [&, last = device.now()]() mutable {
    const Nanos before = std::exchange(last, device.now());
    return device.now() - before;
  };
  ASSERT_TRUE(device.Commit(a, 64_MiB).ok());
  EXPECT_EQ(taken(), 32 * (a100.create + a100.map + a100.set_access));
  ASSERT_TRUE(device.Commit(At(a, 64_MiB), 64_MiB, device.large_piece()).ok());
  EXPECT_EQ(taken(), 2 * (a100.create + a100.map + a100.set_access));
  ASSERT_TRUE(device.Move(At(a, 32_MiB), At(a, 512_MiB), 64_MiB).ok());
  EXPECT_EQ(taken(), 17 * (a100.unmap + a100.map + a100.set_access));
  ASSERT_TRUE(device.Decommit(a, 2_MiB).ok());
  EXPECT_EQ(taken(), a100.unmap);
  EXPECT_EQ(device.driver_time(), device.now());
  device.clock()->Advance(Nanos(1000));
  EXPECT_EQ(taken(), Nanos(1000));
  device.FailAt(1);
  EXPECT_FALSE(device.Commit(a, 2_MiB).ok());
  EXPECT_EQ(taken(), Nanos(0));
  ASSERT_TRUE(device.Unreserve(a, 1_GiB).ok());
  EXPECT_EQ(taken(), 33 * a100.unmap);
  EXPECT_EQ(device.driver_time(), device.now() - Nanos(1000));
}

TEST(SimulatedDeviceTest, AWholeRangeCostsOnePiece) {
  const DriverLatency latency = DriverLatency::QuickCreate();
  SimulatedDevice device({.partial_decommit = false, .latency = latency});
  void* a = device.Reserve(64_MiB).value();
  EXPECT_EQ(device.now(), latency.reserve + latency.Commit());
  EXPECT_TRUE(device.Unreserve(a, 64_MiB).ok());
  EXPECT_EQ(device.now(), latency.reserve + latency.Commit() + latency.unmap);
}

TEST(SimulatedDeviceTest, AddressesRepeat) {
  SimulatedDevice one({}), other({});
  for (Bytes size : {2_MiB, 1_GiB, 6_MiB}) {
    void* a = one.Reserve(size).value();
    EXPECT_EQ(a, other.Reserve(size).value());
    EXPECT_TRUE(one.Unreserve(a, size).ok());
    EXPECT_TRUE(other.Unreserve(a, size).ok());
  }
}

class RememberingWatcher : public MemoryWatcher {
 public:
  void BeforeTaking(uintptr_t begin, uintptr_t end) override { taken.push_back({begin, end}); }
  std::vector<std::pair<uintptr_t, uintptr_t>> taken;
};

TEST(SimulatedDeviceTest, WatchersAreToldBeforeMemoryGoes) {
  SimulatedDevice device({.move = true});
  RememberingWatcher watcher;
  device.Watch(&watcher);
  void* a = device.Reserve(8_MiB).value();
  const auto begin = reinterpret_cast<uintptr_t>(a);
  const uintptr_t mib = (1_MiB).count();
  ASSERT_TRUE(device.Commit(a, 6_MiB).ok());
  EXPECT_TRUE(watcher.taken.empty());
  ASSERT_TRUE(device.Move(a, At(a, 6_MiB), 2_MiB).ok());
  ASSERT_TRUE(device.Decommit(At(a, 2_MiB), 4_MiB).ok());
  ASSERT_TRUE(device.Unreserve(a, 8_MiB).ok());
  ASSERT_EQ(watcher.taken.size(), 3u);
  EXPECT_EQ(watcher.taken[0], std::pair(begin, begin + 2 * mib));
  EXPECT_EQ(watcher.taken[1], std::pair(begin + 2 * mib, begin + 6 * mib));
  EXPECT_EQ(watcher.taken[2], std::pair(begin, begin + 8 * mib));
  device.Unwatch(&watcher);
}

TEST(SimulatedDeviceDeathTest, StopsWhoBreaksTheRules) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SimulatedDevice device({});
        (void)device.Reserve(2_MiB);
      },
      "never unreserved");
  EXPECT_DEATH(
      {
        RememberingWatcher watcher;
        SimulatedDevice device({});
        device.Watch(&watcher);
      },
      "before who watches it");
  SimulatedDevice device({});
  void* a = device.Reserve(8_MiB).value();
  ASSERT_TRUE(device.Commit(a, 4_MiB).ok());
  EXPECT_DEATH((void)device.Commit(a, 2_MiB), "committed twice");
  EXPECT_DEATH((void)device.Commit(At(a, 2_MiB), 4_MiB), "committed twice");
  EXPECT_DEATH((void)device.Decommit(At(a, 4_MiB), 2_MiB), "not committed");
  EXPECT_DEATH((void)device.Decommit(At(a, 2_MiB), 4_MiB), "not committed");
  EXPECT_DEATH((void)device.Unreserve(a, 4_MiB), "not what Reserve returned");
  EXPECT_DEATH((void)device.Commit(a, 64_MiB), "outside of any reserved range");
  EXPECT_TRUE(device.Unreserve(a, 8_MiB).ok());
  EXPECT_DEATH((void)device.Commit(a, 2_MiB), "never reserved");
}

TEST(SimulatedDeviceDeathTest, StopsWhoTakesPartOfAPiece) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  SimulatedDevice device({.move = true});
  void* a = device.Reserve(32_MiB).value();
  ASSERT_TRUE(device.Commit(a, 16_MiB, 8_MiB).ok());
  EXPECT_DEATH((void)device.Decommit(a, 4_MiB), "part of a piece");
  EXPECT_DEATH((void)device.Decommit(At(a, 4_MiB), 12_MiB), "part of a piece");
  EXPECT_DEATH((void)device.Move(a, At(a, 16_MiB), 10_MiB), "part of a piece");
  EXPECT_DEATH((void)device.Move(a, At(a, 8_MiB), 8_MiB), "moved onto memory");
  EXPECT_DEATH((void)device.Move(At(a, 16_MiB), At(a, 24_MiB), 8_MiB), "not committed");
  EXPECT_DEATH((void)device.Move(a, At(a, 28_MiB), 8_MiB), "outside of any reserved range");
  // A piece stays one where it was moved to.
  ASSERT_TRUE(device.Move(a, At(a, 20_MiB), 8_MiB).ok());
  EXPECT_DEATH((void)device.Decommit(At(a, 20_MiB), 4_MiB), "part of a piece");
  EXPECT_TRUE(device.Decommit(At(a, 20_MiB), 8_MiB).ok());
  EXPECT_TRUE(device.Unreserve(a, 32_MiB).ok());
}

TEST(SimulatedDeviceDeathTest, StopsOptionsThatCannotBe) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  using Options = SimulatedDevice::Options;
  EXPECT_DEATH(SimulatedDevice(Options{.granularity = 3_MiB}), "power of two");
  EXPECT_DEATH(SimulatedDevice(Options{.granularity = 2_KiB}), "power of two");
  EXPECT_DEATH(SimulatedDevice(Options{.large_piece = 3_MiB}), "whole granules");
  EXPECT_DEATH(SimulatedDevice(Options{.partial_decommit = false, .move = true}), "in pieces");
  EXPECT_DEATH(SimulatedDevice(Options{.granularity = 4_MiB, .with_bytes = true}), "no bytes");
}

}  // namespace
}  // namespace ebbtide
