// SPDX-License-Identifier: Apache-2.0
#include "allocator/period_finder.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

std::vector<int64_t> Random(int64_t length, int64_t distinct, uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < length; ++i) values.push_back(draw() % distinct);
  return values;
}

// How many values of `repeated`, over and over, it takes until its period is found.
int64_t ValuesUntilFound(PeriodFinder& finder, const std::vector<int64_t>& repeated) {
  const auto length = static_cast<int64_t>(repeated.size());
  for (int64_t i = 0; i < 10 * length; ++i) {
    finder.Add(repeated[i % length]);
    if (finder.period() == length && i + 1 >= 2 * length) return i + 1;
  }
  return -1;
}

TEST(PeriodFinderTest, FindsAnyPeriodWithTheSecondRepetition) {
  for (int64_t length : {8, 9, 10, 31, 64, 100, 1000, 4097, 10'000}) {
    for (int64_t warm_up : {0, 1, 77, 5000}) {
      PeriodFinder finder(10'000);
      for (int64_t value : Random(warm_up, 50, 1)) finder.Add(value);
      const std::vector<int64_t> repeated = Random(length, 30, static_cast<uint32_t>(length));
      EXPECT_EQ(ValuesUntilFound(finder, repeated), 2 * length) << length << " after " << warm_up;
    }
  }
}

// Equal layers, and an optimizer that does the same for each parameter at the end.
TEST(PeriodFinderTest, LooksBeyondWhatRepeatsInside) {
  for (int layers : {2, 5, 24, 100}) {
    std::vector<int64_t> repeated = Random(7, 1000, 5);
    const std::vector<int64_t> layer = Random(20, 1000, 6);
    for (int i = 0; i < layers; ++i) repeated.insert(repeated.end(), layer.begin(), layer.end());
    repeated.push_back(-1);
    for (int i = 0; i < layers; ++i) repeated.insert(repeated.end(), layer.rbegin(), layer.rend());
    for (int i = 0; i < 3 * layers; ++i) repeated.insert(repeated.end(), {5, 6, 7});
    PeriodFinder finder(10'000);
    const int64_t found = ValuesUntilFound(finder, repeated);
    const auto length = static_cast<int64_t>(repeated.size());
    EXPECT_GE(found, 2 * length) << layers;
    EXPECT_LE(found, 2 * length + 1) << layers;
  }
}

// Six turns of a loop, something else, and the loop again: the places after three, four and five of
// the first turns all agree longer with three of the new ones, but say no better what comes.
TEST(PeriodFinderTest, APeriodThatHoldsIsPreferredToALongerAgreement) {
  const std::vector<int64_t> loop = Random(50, 1000, 8);
  PeriodFinder finder(1000);
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      for (int64_t value : loop) finder.Add(value);
    }
  };
  turns(6);
  for (int64_t value : Random(90, 1000, 9)) finder.Add(value);
  turns(3);
  for (int64_t value : loop) {
    finder.Add(value);
    EXPECT_EQ(finder.period(), 50);
  }
}

TEST(PeriodFinderTest, FollowsADistanceThatItIsToldIfTheLastValueAgrees) {
  PeriodFinder finder(100);
  for (int64_t value : {1, 2, 3, 4, 5, 1}) finder.Add(value);
  EXPECT_EQ(finder.followed(), 0);
  EXPECT_FALSE(finder.Follow(4));
  EXPECT_EQ(finder.followed(), 0);
  EXPECT_FALSE(finder.Follow(100)) << "before the first value";
  EXPECT_TRUE(finder.Follow(5));
  EXPECT_EQ(finder.followed(), 5);
  EXPECT_EQ(finder.matched(), 1);
  EXPECT_EQ(finder.period(), 0);
  for (int64_t value : {2, 3, 4, 5}) finder.Add(value);
  EXPECT_EQ(finder.period(), 5);
  finder.Add(9);
  EXPECT_EQ(finder.followed(), 0);
}

TEST(PeriodFinderTest, OneOtherValueEndsThePeriodAndItComesBack) {
  const std::vector<int64_t> repeated = Random(500, 100, 3);
  PeriodFinder finder(1000);
  ASSERT_EQ(ValuesUntilFound(finder, repeated), 1000);
  finder.Add(-5);
  EXPECT_EQ(finder.period(), 0);
  EXPECT_EQ(ValuesUntilFound(finder, repeated), 1000);
}

TEST(PeriodFinderTest, RandomValuesHaveNoPeriod) {
  PeriodFinder finder(1000);
  for (int64_t value : Random(20'000, 1000, 9)) {
    finder.Add(value);
    ASSERT_EQ(finder.period(), 0);
  }
}

TEST(PeriodFinderTest, APeriodBeyondTheLimitIsNotFound) {
  PeriodFinder finder(100);
  EXPECT_EQ(ValuesUntilFound(finder, Random(5000, 1000, 2)), -1);
}

// A period that is reported holds, whatever the values: small alphabets repeat a lot.
TEST(PeriodFinderTest, WhatIsReportedHolds) {
  int64_t reported = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    PeriodFinder finder(200);
    std::vector<int64_t> all;
    std::mt19937 draw(seed);
    while (all.size() < 3000) {
      const std::vector<int64_t> part = Random(1 + draw() % 60, 2, draw());
      for (uint32_t times = 1 + draw() % 4; times > 0; --times) {
        for (int64_t value : part) {
          finder.Add(value);
          all.push_back(value);
          const int64_t period = finder.period();
          if (period == 0) continue;
          ++reported;
          ASSERT_GE(static_cast<int64_t>(all.size()), 2 * period);
          for (int64_t i = 0; i < period; ++i) {
            const size_t at = all.size() - 1 - i;
            ASSERT_EQ(all[at], all[at - period]);
          }
        }
      }
    }
  }
  EXPECT_GT(reported, 1000);
}

TEST(PeriodFinderTest, WindowHashesAgreeWithThoseOfOtherSequences) {
  const std::vector<int64_t> values = Random(100, int64_t{1} << 30, 4);
  PeriodFinder finder(30);
  EXPECT_EQ(finder.window_hash(), 0u);
  for (int64_t i = 0; i < 100; ++i) {
    finder.Add(values[i]);
    if (i + 1 < PeriodFinder::kWindow) continue;
    const int64_t first = i + 1 - PeriodFinder::kWindow;
    EXPECT_EQ(finder.window_hash(),
              PeriodFinder::WindowHash([&](int64_t k) { return values[first + k]; }));
  }
}

}  // namespace
}  // namespace ebbtide
