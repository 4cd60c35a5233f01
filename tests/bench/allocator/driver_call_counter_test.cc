// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/driver_call_counter.h"

#include "allocator/simulated_device.h"
#include "bench/allocator/ebbtide_model.h"
#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

using namespace ebbtide::literals;

void* At(void* address, Bytes offset) { return static_cast<char*>(address) + offset.count(); }

TEST(DriverCallCounterTest, PiecesAreCountedWhenTheyComeAndGo) {
  SimulatedDevice device({.capacity = 1_GiB, .granularity = 2_MiB});
  DriverCallCounter counter(&device);
  void* range = *counter.Reserve(100_MiB);
  EXPECT_EQ(counter.calls(), 1);
  ASSERT_TRUE(counter.Commit(range, 40_MiB, 20_MiB).ok());
  EXPECT_EQ(counter.calls(), 1 + 2 * 2 + 1);
  ASSERT_TRUE(counter.Commit(At(range, 40_MiB), 4_MiB).ok());
  EXPECT_EQ(counter.calls(), 6 + 2 * 2 + 1);
  ASSERT_TRUE(counter.Decommit(range, 20_MiB).ok());
  EXPECT_EQ(counter.calls(), 11 + 2);
  ASSERT_TRUE(counter.Unreserve(range, 100_MiB).ok());
  EXPECT_EQ(counter.calls(), 13 + 1 + 2 * 3) << "one large piece and two small ones were left";
}

TEST(DriverCallCounterTest, AFailureIsOneCallMore) {
  SimulatedDevice device({.capacity = 4_MiB, .granularity = 2_MiB});
  DriverCallCounter counter(&device);
  void* range = *counter.Reserve(8_MiB);
  EXPECT_FALSE(counter.Commit(range, 6_MiB).ok());
  const int64_t calls = counter.calls();
  ASSERT_TRUE(counter.Unreserve(range, 8_MiB).ok());
  EXPECT_EQ(counter.calls(), calls + 1) << "nothing stayed mapped";
}

TEST(EbbtideModelTest, HoldsWholeGranulesAndKeepsTheBudget) {
  EbbtideModel model(4 << 20);
  const AllocatorModel::Handle block = model.Allocate(3 << 20, 0);
  ASSERT_NE(block, 0U);
  EXPECT_EQ(model.peak_held(), 4 << 20);
  EXPECT_GT(model.driver_calls(), 0);
  EXPECT_EQ(model.Allocate(2 << 20, 0), 0U);
  model.Free(block);
}

}  // namespace
}  // namespace ebbtide::bench
