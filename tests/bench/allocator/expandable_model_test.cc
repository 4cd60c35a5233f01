// SPDX-License-Identifier: Apache-2.0
//
// The rules of PyTorch's allocator with expandable segments, one by one.

#include "bench/allocator/expandable_model.h"

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kUnlimited = int64_t{1} << 40;

using Handle = AllocatorModel::Handle;

TEST(ExpandableModelTest, MemoryComesInHandlesOfThePool) {
  ExpandableModel model(kUnlimited);
  model.Allocate(kKiB, 0);
  EXPECT_EQ(model.peak_held(), 2 * kMiB);
  model.Allocate(2 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 22 * kMiB);
  model.Allocate(21 * kMiB, 0);  // 18 MiB are there
  EXPECT_EQ(model.peak_held(), 42 * kMiB);
}

TEST(ExpandableModelTest, AFreeBlockAtTheEdgeGrowsInsteadOfANewOne) {
  ExpandableModel model(kUnlimited);
  model.Free(model.Allocate(20 * kMiB, 0));
  model.Allocate(50 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 60 * kMiB) << "40 MiB behind the 20 that were free";
}

TEST(ExpandableModelTest, TheEdgeIsLeftAloneWhileAnotherBlockFits) {
  ExpandableModel model(kUnlimited);
  const Handle inner = model.Allocate(30 * kMiB, 0);
  model.Allocate(10 * kMiB, 0);
  const Handle edge = model.Allocate(20 * kMiB, 0);
  model.Free(inner);
  model.Free(edge);
  // 20 MiB fit into the edge exactly, but that could grow: the inner hole of 30 MiB is taken.
  model.Allocate(20 * kMiB, 0);
  model.Allocate(40 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 80 * kMiB) << "the edge had 20 MiB of the 40";
}

TEST(ExpandableModelTest, AHoleThatIsTooSmallStaysAHole) {
  ExpandableModel model(kUnlimited);
  const Handle hole = model.Allocate(20 * kMiB, 0);
  model.Allocate(20 * kMiB, 0);
  model.Free(hole);
  model.Allocate(40 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 80 * kMiB);
}

TEST(ExpandableModelTest, LargeBlocksAreCutTo512Bytes) {
  ExpandableModel model(kUnlimited);
  model.Free(model.Allocate(20 * kMiB, 0));
  model.Allocate(19 * kMiB - 512, 0);
  model.Allocate(kMiB + 512, 0);
  EXPECT_EQ(model.peak_held(), 20 * kMiB);
}

TEST(ExpandableModelTest, EachStreamHasItsOwnRange) {
  ExpandableModel model(kUnlimited);
  model.Free(model.Allocate(20 * kMiB, 0));
  model.Allocate(20 * kMiB, 1);
  EXPECT_EQ(model.peak_held(), 40 * kMiB);
}

TEST(ExpandableModelTest, OverTheCapacityWholeHandlesOfFreeBlocksGoBack) {
  ExpandableModel model(60 * kMiB);
  const Handle first = model.Allocate(30 * kMiB, 0);
  model.Allocate(5 * kMiB, 0);
  model.Free(first);  // the first handle is wholly free, the second is not
  EXPECT_NE(model.Allocate(44 * kMiB, 0), 0U) << "5 MiB of the second handle and two more";
  EXPECT_EQ(model.peak_held(), 60 * kMiB);
  EXPECT_EQ(model.Allocate(20 * kMiB, 0), 0U);
  EXPECT_NE(model.Allocate(10 * kMiB, 0), 0U) << "what is left of the second handle";
}

TEST(ExpandableModelTest, UnmappedAddressesAreUsedAgain) {
  ExpandableModel model(40 * kMiB);
  const Handle first = model.Allocate(20 * kMiB, 0);
  const Handle second = model.Allocate(20 * kMiB, 0);
  model.Free(first);
  EXPECT_EQ(model.Allocate(21 * kMiB, 0), 0U) << "one handle was free, two are needed";
  EXPECT_NE(model.Allocate(20 * kMiB, 0), 0U) << "the handle that went is mapped again";
  model.Free(second);
}

TEST(ExpandableModelTest, DriverCallsCountHandlesAndRanges) {
  ExpandableModel model(40 * kMiB);
  model.Free(model.Allocate(40 * kMiB, 0));
  EXPECT_EQ(model.driver_calls(), 1 + 2 * 2 + 1);
  model.Allocate(kKiB, 0);  // a range, a refusal, both handles go, a small one comes
  EXPECT_EQ(model.driver_calls(), 6 + 1 + 1 + 2 * 2 + 2 + 1);
}

}  // namespace
}  // namespace ebbtide::bench
