// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <thread>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

TEST(ClockTest, NeverGoesBack) {
  Nanos last = MonotonicNow();
  for (int i = 0; i < 100'000; ++i) {
    const Nanos now = MonotonicNow();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, MeasuresSleepInNanoseconds) {
  const Nanos start = MonotonicNow();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(MonotonicNow() - start, std::chrono::milliseconds(5));
  EXPECT_LT(MonotonicNow() - start, std::chrono::seconds(30));
}

TEST(ClockTest, Seconds) { EXPECT_DOUBLE_EQ(ToSeconds(std::chrono::milliseconds(1500)), 1.5); }

}  // namespace
}  // namespace ebbtide
