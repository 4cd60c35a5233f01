// SPDX-License-Identifier: Apache-2.0

#include "policy/published/schedule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide::published {
namespace {

using ::testing::ElementsAre;
using Result = ScheduleBuilder::Result;

TEST(ScheduleBuilderTest, AnAliasJoinsTheStorageOfItsArgument) {
  ScheduleBuilder builder;
  const TensorId base = builder.Compute(0, {}, {{40, -1}});
  const TensorId other = builder.Compute(0, {}, {{7, -1}});
  const TensorId view = builder.Compute(3, {other, base}, {{99, 1}, {5, -1}});
  const TensorId view_of_view = builder.Compute(1, {view}, {{0, 0}});
  EXPECT_EQ(builder.StorageBytes(view_of_view), 40);
  const Schedule schedule = builder.Finish();
  EXPECT_EQ(schedule.storages.size(), 3u);
  EXPECT_THAT(schedule.storages[schedule.tensors[base].storage].tensors,
              ElementsAre(base, view, view_of_view));
  EXPECT_TRUE(schedule.tensors[base].is_root);
  EXPECT_FALSE(schedule.tensors[view].is_root);
  EXPECT_EQ(schedule.tensors[view].bytes, 0) << "whatever size was recorded for it";
  const Op& op = schedule.ops[2];
  EXPECT_EQ(op.result_bytes, 5);
  EXPECT_EQ(op.result_count, 2);
  EXPECT_EQ(op.first_result, view);
  EXPECT_THAT(op.arguments, ElementsAre(other, base));
  EXPECT_EQ(schedule.tensors[view + 1].op, 2);
}

TEST(BaselineTest, PeakIsTakenWithResultsAddedAndArgumentsStillLive) {
  ScheduleBuilder builder;
  const TensorId x = builder.Compute(2, {}, {{10, -1}});
  const TensorId y = builder.Compute(3, {x}, {{20, -1}});
  builder.Release(x);
  builder.Compute(4, {y}, {{5, -1}});
  const Baseline baseline = MeasureBaseline(builder.schedule());
  EXPECT_EQ(baseline.peak_bytes, 30);
  EXPECT_EQ(baseline.total_cost, 9);
}

TEST(BaselineTest, AStorageLivesAsLongAsAnyOfItsTensorsIsHeld) {
  ScheduleBuilder builder;
  const TensorId x = builder.Compute(1, {}, {{10, -1}});
  const TensorId view = builder.Compute(1, {x}, {{0, 0}});
  builder.Get(x);
  builder.Release(x);
  builder.Release(x);
  builder.Compute(1, {}, {{7, -1}});
  EXPECT_EQ(MeasureBaseline(builder.schedule()).peak_bytes, 17) << "the view holds x";
  builder.Release(view);
  builder.Compute(1, {}, {{9, -1}});
  EXPECT_EQ(MeasureBaseline(builder.schedule()).peak_bytes, 17) << "7 + 9 is less";
}

TEST(BaselineTest, AStorageIsFreedOnce) {
  ScheduleBuilder builder;
  const TensorId x = builder.Compute(1, {}, {{10, -1}});
  builder.Release(x);
  builder.Get(x);
  builder.Release(x);
  builder.Compute(1, {}, {{12, -1}});
  EXPECT_EQ(MeasureBaseline(builder.schedule()).peak_bytes, 12)
      << "and not 10, with live bytes below zero in between";
}

TEST(BaselineTest, PinsKeepNothing) {
  ScheduleBuilder builder;
  const TensorId weight = builder.Compute(0, {}, {{10, -1}});
  builder.Pin(weight);
  builder.Release(weight);
  builder.Compute(1, {}, {{8, -1}});
  EXPECT_EQ(MeasureBaseline(builder.schedule()).peak_bytes, 10);
}

}  // namespace
}  // namespace ebbtide::published
