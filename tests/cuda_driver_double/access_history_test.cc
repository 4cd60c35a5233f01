// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/access_history.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide::hollow {
namespace {

// The definition: every touch of every byte is kept, and compared one by one.
class PlainHistory {
 public:
  bool Note(const Touch& touch, const Toucher& toucher, const Clock& clock) {
    bool conflict = false;
    for (const auto& [earlier, earlier_touch] : all_) {
      conflict |= Overlap(earlier_touch, touch) && (touch.writes || earlier_touch.writes) &&
                  !IsBefore(earlier, clock);
    }
    all_.emplace_back(toucher, touch);
    return conflict;
  }

  bool FindUnordered(uintptr_t start, size_t bytes, const Clock& clock) const {
    for (const auto& [earlier, touch] : all_) {
      if (Overlap(touch, {start, bytes, false}) && !IsBefore(earlier, clock)) return true;
    }
    return false;
  }

 private:
  static bool Overlap(const Touch& a, const Touch& b) {
    return a.start < b.start + b.bytes && b.start < a.start + a.bytes;
  }
  static bool IsBefore(const Toucher& toucher, const Clock& clock) {
    const auto known = clock.find(toucher.stream);
    return known != clock.end() && known->second >= toucher.number;
  }

  std::vector<std::pair<Toucher, Touch>> all_;
};

// A write hides what was before it, so the two may differ in which races they see only after one:
// each sequence is compared up to the first.
TEST(AccessHistoryTest, FindsTheFirstRaceOfRandomSequencesAndNoOther) {
  int races = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    AccessHistory history;
    PlainHistory plain;
    std::vector<Clock> clocks(3);
    for (int step = 0; step < 60; ++step) {
      const uint64_t stream = random() % clocks.size();
      Clock& clock = clocks[stream];
      // Now and then a stream waits for another's work so far, most often enough to be ordered.
      if (random() % 3 != 0) {
        for (const Clock& other : clocks) Merge(other, &clock);
      }
      const Toucher toucher{stream, ++clock[stream], "touch"};
      const Touch touch{random() % 50, 1 + random() % 10, random() % 3 == 0};
      const bool expected = plain.Note(touch, toucher, clock);
      ASSERT_EQ(history.Note(touch, toucher, clock).has_value(), expected) << seed << " " << step;
      if (expected) {
        ++races;
        break;
      }
      Clock host;
      if (random() % 2 == 0) host = clocks[random() % clocks.size()];
      const uintptr_t start = random() % 60;
      ASSERT_EQ(history.FindUnordered(start, 5, host).has_value(),
                plain.FindUnordered(start, 5, host))
          << seed << " " << step;
    }
  }
  EXPECT_GT(races, 50);
  EXPECT_LT(races, 300);
}

TEST(AccessHistoryTest, ForgettingHalfARangeKeepsTheOther) {
  AccessHistory history;
  EXPECT_FALSE(history.Note({0, 100, true}, {1, 1, "first"}, {{1, 1}}).has_value());
  history.Forget(0, 50);
  EXPECT_FALSE(history.FindUnordered(0, 50, {}).has_value());
  const std::optional<Toucher> user = history.FindUnordered(0, 51, {});
  ASSERT_TRUE(user.has_value());
  EXPECT_STREQ(user->name, "first");
  EXPECT_FALSE(history.FindUnordered(0, 100, {{1, 1}}).has_value());
}

}  // namespace
}  // namespace ebbtide::hollow
