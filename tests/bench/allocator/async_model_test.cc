// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/async_model.h"

#include "gtest/gtest.h"

namespace ebbtide::bench {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kUnlimited = int64_t{1} << 40;

TEST(AsyncModelTest, ThePoolGrowsByMultiplesOf32MiB) {
  AsyncModel model(kUnlimited);
  model.Allocate(1, 0);
  EXPECT_EQ(model.peak_held(), 32 * kMiB);
  model.Allocate(32 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 64 * kMiB);
  model.Allocate(33 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 128 * kMiB);
  EXPECT_EQ(model.driver_calls(), 3);
}

TEST(AsyncModelTest, AFreedBlockServesAnyStream) {
  AsyncModel model(kUnlimited);
  model.Free(model.Allocate(32 * kMiB, 0));
  model.Allocate(32 * kMiB, 1);
  EXPECT_EQ(model.peak_held(), 32 * kMiB);
}

TEST(AsyncModelTest, NeighboursMergeWithinAChunk) {
  AsyncModel model(kUnlimited);
  const AllocatorModel::Handle first = model.Allocate(16 * kMiB, 0);
  const AllocatorModel::Handle second = model.Allocate(16 * kMiB, 0);
  model.Free(first);
  model.Free(second);
  model.Allocate(32 * kMiB, 0);
  EXPECT_EQ(model.peak_held(), 32 * kMiB);
}

TEST(AsyncModelTest, OverTheCapacityFreeChunksGoBackAndGrowthIsExact) {
  AsyncModel model(70 * kMiB);
  model.Free(model.Allocate(32 * kMiB, 0));
  EXPECT_NE(model.Allocate(66 * kMiB, 0), 0U);
  EXPECT_NE(model.Allocate(4 * kMiB, 0), 0U);
  EXPECT_EQ(model.peak_held(), 70 * kMiB);
  EXPECT_EQ(model.Allocate(1, 0), 0U);
}

}  // namespace
}  // namespace ebbtide::bench
