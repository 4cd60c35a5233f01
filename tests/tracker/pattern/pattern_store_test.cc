// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/pattern_store.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

StoredPattern Pattern(const std::vector<uint64_t>& signatures, int64_t last_followed) {
  StoredPattern pattern;
  pattern.signatures = signatures;
  for (size_t i = 0; i <= signatures.size(); ++i) {
    pattern.nanos.push_back(static_cast<int64_t>(10 * i));
    pattern.first_record.push_back(static_cast<uint32_t>(i));
    pattern.records.push_back({static_cast<uint32_t>(i + 1), 0});
  }
  pattern.records.pop_back();
  pattern.last_followed = last_followed;
  return pattern;
}

std::vector<uint64_t> Range(uint64_t first, uint64_t count) {
  std::vector<uint64_t> range;
  for (uint64_t i = 0; i < count; ++i) range.push_back(first + i);
  return range;
}

PeriodFinder Recent(const std::vector<uint64_t>& calls) {
  PeriodFinder recent(1000);
  for (const uint64_t call : calls) recent.Add(static_cast<int64_t>(call));
  return recent;
}

TEST(PatternStoreTest, IsFoundInTheMiddleOfItsTurnAndAcrossItsEnd) {
  PatternStore store(Bytes(1 << 20));
  store.Insert(Pattern(Range(100, 20), 1));
  PatternStore::Place place = store.Find(Recent(Range(103, 9)));
  ASSERT_NE(place.pattern, nullptr);
  EXPECT_EQ(place.phase, 11);
  EXPECT_EQ(place.matched, 9);
  std::vector<uint64_t> across = Range(114, 6);
  for (const uint64_t call : Range(100, 4)) across.push_back(call);
  place = store.Find(Recent(across));
  ASSERT_NE(place.pattern, nullptr);
  EXPECT_EQ(place.phase, 3);
  EXPECT_EQ(place.matched, 10);
  EXPECT_EQ(store.Find(Recent(Range(103, 7))).pattern, nullptr) << "less than a window";
  EXPECT_EQ(store.Find(Recent(Range(200, 9))).pattern, nullptr);
}

TEST(PatternStoreTest, OfTwoPlacesTheOneThatAgreesFurtherBackWins) {
  PatternStore store(Bytes(1 << 20));
  std::vector<uint64_t> one = Range(1, 10);  // then the part that both have
  std::vector<uint64_t> two = Range(21, 10);
  for (const uint64_t call : Range(50, 12)) {
    one.push_back(call);
    two.push_back(call);
  }
  store.Insert(Pattern(one, 1));
  store.Insert(Pattern(two, 2));
  std::vector<uint64_t> calls = Range(50, 12);
  EXPECT_EQ(store.Find(Recent(calls)).pattern->signatures, two) << "followed last";
  calls.insert(calls.begin(), {9, 10});
  EXPECT_EQ(store.Find(Recent(calls)).pattern->signatures, one);
}

TEST(PatternStoreTest, TheOneFollowedLongestAgoMakesRoom) {
  const int64_t each = Pattern(Range(0, 50), 0).memory_bytes();
  PatternStore store(Bytes(3 * each));
  for (int i = 0; i < 10; ++i) {
    store.Insert(Pattern(Range(1000 * i, 50), i == 1 ? 100 : i));
    EXPECT_LE(store.memory_bytes(), 3 * each);
  }
  EXPECT_EQ(store.size(), 3);
  EXPECT_NE(store.FindCall(1000).pattern, nullptr) << "followed at 100";
  EXPECT_NE(store.FindCall(9000).pattern, nullptr);
  EXPECT_EQ(store.FindCall(2000).pattern, nullptr);
  EXPECT_EQ(store.Find(Recent(Range(2000, 20))).pattern, nullptr) << "no trace in the index";
  store.Insert(Pattern(Range(0, 500), 1000));
  EXPECT_EQ(store.size(), 3) << "too large on its own";
}

TEST(PatternStoreTest, ATurnIsRecognisedWhereverItBegins) {
  PatternStore store(Bytes(1 << 20));
  store.Insert(Pattern(Range(100, 20), 1));
  std::vector<uint64_t> turned = Range(113, 7);
  for (const uint64_t call : Range(100, 13)) turned.push_back(call);
  const PeriodFinder recent = Recent(turned);
  const PatternStore::Place place = store.FindTurn(recent, 20, 20);
  ASSERT_NE(place.pattern, nullptr);
  EXPECT_EQ(place.phase, 12);
  EXPECT_EQ(store.FindTurn(recent, 20, 19).pattern, nullptr);
  std::vector<uint64_t> other = turned;
  other[2] = 1;
  EXPECT_EQ(store.FindTurn(Recent(other), 20, 20).pattern, nullptr);
}

TEST(PatternStoreTest, TimesAndPhasesGoRoundTheTurn) {
  StoredPattern pattern = Pattern(Range(0, 20), 0);
  EXPECT_EQ(pattern.Phase(3, -5), 18);
  EXPECT_EQ(pattern.Phase(3, 57), 0);
  EXPECT_EQ(pattern.NanosAfter(15, 3), 30);
  EXPECT_EQ(pattern.NanosAfter(15, 10), 100);
  EXPECT_EQ(pattern.NanosAfter(15, 45), 450);
  ASSERT_NE(pattern.Record(19, 0), nullptr);
  EXPECT_EQ(pattern.Record(19, 0)->calls, 20U);
  EXPECT_EQ(pattern.Record(19, 1), nullptr);
}

}  // namespace
}  // namespace ebbtide
