// SPDX-License-Identifier: Apache-2.0
//
// The rules of PyTorch's default allocator, one by one, on sequences of a few requests.

#include "bench/allocator/native_model.h"

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kUnlimited = int64_t{1} << 40;

using Handle = AllocatorModel::Handle;

// What one request makes a fresh allocator hold.
int64_t HeldFor(int64_t bytes) {
  NativeModel model(kUnlimited);
  EXPECT_NE(model.Allocate(bytes, 0), 0U);
  return model.peak_held();
}

TEST(NativeModelTest, SegmentsAreSizedByTheRequest) {
  EXPECT_EQ(HeldFor(1), 2 * kMiB);
  EXPECT_EQ(HeldFor(kMiB), 2 * kMiB);
  EXPECT_EQ(HeldFor(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(HeldFor(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(HeldFor(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(HeldFor(10 * kMiB + 1), 12 * kMiB);
}

TEST(NativeModelTest, SmallRequestsAreRoundedTo512Bytes) {
  NativeModel model(kUnlimited);
  for (int i = 0; i < 4096; ++i) model.Allocate(1, 0);
  EXPECT_EQ(model.peak_held(), 2 * kMiB);
  model.Allocate(1, 0);
  EXPECT_EQ(model.peak_held(), 4 * kMiB);
}

TEST(NativeModelTest, SmallAndLargeRequestsShareNoSegment) {
  NativeModel model(kUnlimited);
  model.Allocate(2 * kMiB, 0);  // leaves 18 MiB of its segment free
  model.Allocate(kKiB, 0);
  EXPECT_EQ(model.peak_held(), 22 * kMiB);
}

TEST(NativeModelTest, ALargeBlockIsCutOnlyWhenMoreThanOneMegabyteIsLeft) {
  NativeModel model(kUnlimited);
  model.Free(model.Allocate(20 * kMiB, 0));
  model.Allocate(19 * kMiB, 0);  // takes all: 1 MiB is not more than 1 MiB
  model.Allocate(kMiB + 512, 0);
  EXPECT_EQ(model.peak_held(), 40 * kMiB);

  NativeModel other(kUnlimited);
  other.Free(other.Allocate(20 * kMiB, 0));
  other.Allocate(19 * kMiB - 512, 0);
  other.Allocate(kMiB + 512, 0);  // exactly what was left
  EXPECT_EQ(other.peak_held(), 20 * kMiB);
}

TEST(NativeModelTest, TheSmallestSufficientBlockIsTaken) {
  NativeModel model(kUnlimited);
  const Handle large = model.Allocate(40 * kMiB, 0);
  const Handle fitting = model.Allocate(30 * kMiB, 0);
  model.Free(large);
  model.Free(fitting);
  model.Allocate(30 * kMiB, 0);
  model.Allocate(40 * kMiB, 0);  // still whole
  EXPECT_EQ(model.peak_held(), 70 * kMiB);
}

TEST(NativeModelTest, FreedNeighboursBecomeOneBlockInAnyOrder) {
  for (const bool forwards : {true, false}) {
    NativeModel model(kUnlimited);
    Handle blocks[4];
    for (Handle& block : blocks) block = model.Allocate(5 * kMiB, 0);
    EXPECT_EQ(model.peak_held(), 20 * kMiB);
    for (int i = 0; i < 4; ++i) model.Free(blocks[forwards ? i : 3 - i]);
    model.Allocate(20 * kMiB, 0);
    EXPECT_EQ(model.peak_held(), 20 * kMiB);
  }
}

TEST(NativeModelTest, ABlockServesItsOwnStreamOnly) {
  NativeModel model(kUnlimited);
  model.Free(model.Allocate(30 * kMiB, 0));
  const Handle other = model.Allocate(30 * kMiB, 1);
  EXPECT_EQ(model.peak_held(), 60 * kMiB);
  model.Free(other);
  model.Allocate(30 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 60 * kMiB);
}

TEST(NativeModelTest, OverTheCapacityWhollyFreeSegmentsGoBack) {
  NativeModel model(64 * kMiB);
  model.Free(model.Allocate(30 * kMiB, 1));
  const Handle small = model.Allocate(kKiB, 0);  // keeps its segment
  const int64_t calls = model.driver_calls();
  EXPECT_NE(model.Allocate(60 * kMiB, 0), 0U);
  EXPECT_EQ(model.driver_calls(), calls + 3);  // refused, one freed, one made
  EXPECT_EQ(model.Allocate(4 * kMiB, 0), 0U) << "only 2 MiB are left, and nothing is cached";
  EXPECT_LE(model.peak_held(), 64 * kMiB);
  model.Free(small);
}

TEST(NativeModelTest, ASegmentThatIsPartlyUsedDoesNotGoBack) {
  NativeModel model(40 * kMiB);
  const Handle kept = model.Allocate(5 * kMiB, 0);  // 15 MiB of its segment are free
  EXPECT_EQ(model.Allocate(30 * kMiB, 0), 0U);
  model.Free(kept);
  EXPECT_NE(model.Allocate(30 * kMiB, 0), 0U);
}

}  // namespace
}  // namespace ebbtide::bench
