// SPDX-License-Identifier: Apache-2.0

#include "allocator/rmm_csv.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using Action = RmmEvent::Action;
using testing::HasSubstr;

constexpr absl::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

std::string ErrorOf(absl::string_view lines) {
  return std::string(ParseRmmCsv(absl::StrCat(kHeader, lines)).status().message());
}

TEST(RmmCsvTest, ReadsBothFormsOfTimeAndOfPointers) {
  const auto events = ParseRmmCsv(absl::StrCat(kHeader,
                                               "17,00:00:01.000002,allocate,0x7fA0,256,0\n"
                                               "18,23:59:59:999999,allocate,7f1000,512,0x2\r\n"
                                               "17,01:00:00.000000,free,0x7fa0,256,5581aa00\n"
                                               "17,10:20:30:405060,allocate failure,(nil),9,0x1\n"
                                               "17,10:20:30:405060,allocate failure,0,9,0\n"
                                               "17,10:20:30:405061,allocate,(nil),0,0\n"))
                          .value();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0], (RmmEvent{17, 1'000'002, Action::kAllocate, 0x7fa0, Bytes(256), 0}));
  EXPECT_EQ(events[1].time_us, 86'399'999'999);
  EXPECT_EQ(events[1].pointer, 0x7f1000u);
  EXPECT_EQ(events[1].stream, 2u);
  EXPECT_EQ(events[2].action, Action::kFree);
  EXPECT_EQ(events[2].stream, 0x5581aa00u);
  EXPECT_EQ(events[3].action, Action::kAllocateFailure);
  EXPECT_EQ(events[3].pointer, 0u);
  EXPECT_EQ(events[3].time_us, ((10 * 60 + 20) * 60 + 30) * int64_t{1'000'000} + 405'060);
}

TEST(RmmCsvTest, WhatIsWrittenIsReadAgain) {
  std::mt19937_64 random(5);
  std::vector<RmmEvent> events;
  for (int i = 0; i < 1000; ++i) {
    events.push_back({.thread = static_cast<int64_t>(random() % 100),
                      .time_us = static_cast<int64_t>(random() % 86'400'000'000),
                      .action = static_cast<Action>(random() % 3),
                      .pointer = random() | 1,
                      .size = Bytes(static_cast<int64_t>(random() >> (1 + random() % 60))),
                      .stream = random() % 3 == 0 ? random() : 0});
  }
  events.push_back({.action = Action::kAllocateFailure, .size = Bytes(1)});
  const std::string text = FormatRmmCsv(events);
  EXPECT_EQ(ParseRmmCsv(text).value(), events);
  EXPECT_THAT(text, HasSubstr("0,00:00:00.000000,allocate failure,(nil),1,0\n"));
}

TEST(RmmCsvTest, AnEmptyLogIsALog) {
  EXPECT_TRUE(ParseRmmCsv(kHeader).value().empty());
  EXPECT_EQ(FormatRmmCsv({}), kHeader);
}

TEST(RmmCsvTest, ErrorsNameLineAndValue) {
  EXPECT_THAT(ParseRmmCsv("").status().message(), HasSubstr("line 1"));
  EXPECT_THAT(ParseRmmCsv("a,b\n").status().message(), HasSubstr("'a,b'"));
  const std::string good = "1,00:00:00.000000,free,0x1,1,0\n";
  EXPECT_EQ(ErrorOf(good), "");
  EXPECT_EQ(ErrorOf(good + good + "1,2\n"), "RMM log, line 4: 6 columns are expected: '1,2'");
  EXPECT_THAT(ErrorOf(good + "\n"), HasSubstr("line 3: 6 columns"));
  EXPECT_THAT(ErrorOf("x,00:00:00.000000,free,0x1,1,0\n"), HasSubstr("thread: 'x'"));
  EXPECT_THAT(ErrorOf("1,00:00:00.00000,free,0x1,1,0\n"), HasSubstr("time"));
  EXPECT_THAT(ErrorOf("1,24:00:00.000000,free,0x1,1,0\n"), HasSubstr("time"));
  EXPECT_THAT(ErrorOf("1,00:60:00.000000,free,0x1,1,0\n"), HasSubstr("time"));
  EXPECT_THAT(ErrorOf("1,00:00:00-000000,free,0x1,1,0\n"), HasSubstr("time"));
  EXPECT_THAT(ErrorOf("1,00:00:-1.000000,free,0x1,1,0\n"), HasSubstr("time"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,deallocate,0x1,1,0\n"), HasSubstr("'deallocate'"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0xg,1,0\n"), HasSubstr("pointer: '0xg'"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0x,1,0\n"), HasSubstr("pointer"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0x11112222333344445,1,0\n"), HasSubstr("pointer"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0x1,-1,0\n"), HasSubstr("size: '-1'"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0x1,9223372036854775808,0\n"), HasSubstr("size"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,free,0x1,1,s\n"), HasSubstr("stream: 's'"));
  EXPECT_THAT(ErrorOf("1,00:00:00.000000,allocate,(nil),1,0\n"), HasSubstr("without a pointer"));
  EXPECT_THAT(ErrorOf(good + "1,00:00:00.000000,free,0x1,1,0"),
              HasSubstr("line 3: the line is cut"));
}

}  // namespace
}  // namespace ebbtide
