// SPDX-License-Identifier: Apache-2.0

#include "allocator/history_ring.h"

#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

constexpr HistoryAction kActions[] = {
    HistoryAction::kAlloc,        HistoryAction::kFreeRequested, HistoryAction::kFreeCompleted,
    HistoryAction::kSegmentAlloc, HistoryAction::kSegmentFree,   HistoryAction::kSegmentMap,
    HistoryAction::kSegmentUnmap, HistoryAction::kSnapshot,      HistoryAction::kOom};

// Every field is a function of the number, so that a torn event cannot look right.
void AddNumber(HistoryRing* ring, uint64_t n) {
  ring->Add(kActions[n % kHistoryActions], n * 3, Bytes(static_cast<int64_t>(n * 5)), n * 7,
            static_cast<int>(n % 4));
}

uint64_t NumberOf(const HistoryEvent& event) { return event.address / 3; }

bool IsWhole(const HistoryEvent& event) {
  const uint64_t n = NumberOf(event);
  return event.action == kActions[n % kHistoryActions] && event.address == n * 3 &&
         event.size.count() == static_cast<int64_t>(n * 5) && event.stream == n * 7 &&
         event.device == static_cast<int>(n % 4);
}

TEST(HistoryRingTest, RecordsNothingUntilToldWhat) {
  HistoryRing ring(8);
  AddNumber(&ring, 1);
  EXPECT_TRUE(ring.Read().empty());
  EXPECT_EQ(ring.capacity(), 8);
}

TEST(HistoryRingTest, KeepsTheLastEventsInOrder) {
  for (int64_t capacity : {1, 2, 3, 8, 100, 128}) {
    HistoryRing ring(capacity);
    ring.Record(HistoryRing::kAll);
    for (uint64_t n = 0; n < 300; ++n) {
      AddNumber(&ring, n);
      const std::vector<HistoryEvent> events = ring.Read();
      const uint64_t expected = std::min<uint64_t>(capacity, n + 1);
      ASSERT_EQ(events.size(), expected) << capacity;
      for (uint64_t i = 0; i < expected; ++i) {
        ASSERT_EQ(NumberOf(events[i]), n + 1 - expected + i);
        ASSERT_TRUE(IsWhole(events[i]));
      }
    }
  }
}

TEST(HistoryRingTest, OnlyWantedActionsAreKept) {
  HistoryRing ring(16);
  ring.Record(HistoryRing::kAll & ~HistoryRing::Only(HistoryAction::kFreeRequested));
  for (uint64_t n = 0; n < kHistoryActions; ++n) AddNumber(&ring, n);
  const std::vector<HistoryEvent> events = ring.Read();
  EXPECT_EQ(events.size(), kHistoryActions - 1u);
  for (const HistoryEvent& event : events) {
    EXPECT_NE(event.action, HistoryAction::kFreeRequested);
  }
}

TEST(HistoryRingTest, ClearForgetsAndSwitchingOffDoesNot) {
  HistoryRing ring(4);
  ring.Record(HistoryRing::kAll);
  for (uint64_t n = 0; n < 6; ++n) AddNumber(&ring, n);
  ring.Clear();
  EXPECT_TRUE(ring.Read().empty());
  AddNumber(&ring, 6);
  ring.Record(HistoryRing::kNone);
  AddNumber(&ring, 7);
  const std::vector<HistoryEvent> events = ring.Read();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(NumberOf(events[0]), 6u);
}

TEST(HistoryRingTest, TimesAreThoseOfTheCalendarAndGrow) {
  const auto micros = [] {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  };
  HistoryRing ring(4);
  ring.Record(HistoryRing::kAll);
  const int64_t before = micros();
  AddNumber(&ring, 1);
  timespec pause{.tv_sec = 0, .tv_nsec = 30'000'000};
  nanosleep(&pause, nullptr);
  AddNumber(&ring, 2);
  const int64_t after = micros();
  const std::vector<HistoryEvent> events = ring.Read();
  ASSERT_EQ(events.size(), 2u);
  constexpr int64_t kTolerance = 3000;  // the machine may be slow, and its clock be adjusted
  EXPECT_GE(events[0].time_us, before - kTolerance);
  EXPECT_LE(events[1].time_us, after + kTolerance);
  EXPECT_GE(events[1].time_us - events[0].time_us, 30'000 - kTolerance);
}

TEST(HistoryRingTest, WrittenAndReadByManyThreadsAtOnce) {
  constexpr uint64_t kEach = 40'000;
  constexpr uint64_t kWriters = 4;
  HistoryRing ring(512);
  ring.Record(HistoryRing::kAll);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  std::thread reader([&] {
    while (!stop) {
      std::vector<uint64_t> last(kWriters, 0);
      for (const HistoryEvent& event : ring.Read()) {
        const uint64_t n = NumberOf(event);
        ASSERT_TRUE(IsWhole(event));
        ASSERT_GE(n / kWriters, last[n % kWriters]) << "a writer's events lost their order";
        last[n % kWriters] = n / kWriters;
        ++seen;
      }
    }
  });
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < kWriters; ++t) {
    writers.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) AddNumber(&ring, i * kWriters + t);
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  reader.join();
  EXPECT_GT(seen, 0u);
  EXPECT_LE(ring.Read().size(), 512u);
  EXPECT_GE(ring.Read().size(), 500u);  // a writer that was interrupted may have lost its slot
}

TEST(HistoryRingDeathTest, ARingWithoutRoomIsAMistake) {
  EXPECT_DEATH(HistoryRing(0), "a ring of 0 events");
}

}  // namespace
}  // namespace ebbtide
