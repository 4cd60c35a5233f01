// SPDX-License-Identifier: Apache-2.0
// Forecasts for sequences that tests/tracker/record_calls.py recorded from PyTorch programs. The
// table of docs/pattern.md is what this prints. The programs are short: half of each is the time in
// which everything happens for the first or second time.
#include <ostream>
#include <string>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/tracker/pattern/call_file.h"
#include "tests/tracker/pattern/scored_program.h"
#include "tracker/pattern/pattern.h"

namespace ebbtide {
namespace {

// What was measured, less a little: a change for the worse fails.
struct Floors {
  const char* name;
  double precision;          // of the whole program
  double coverage;           // likewise
  double second_precision;   // of its second half
  double second_coverage;    // likewise
  double second_time_error;  // likewise: at most
  int64_t departures;        // at most
  friend void PrintTo(const Floors& floors, std::ostream* out) { *out << floors.name; }
};

class RecordedTest : public testing::TestWithParam<Floors> {};

TEST_P(RecordedTest, ForecastsComeTrue) {
  const Floors& floors = GetParam();
  const auto calls =
      ReadCalls(absl::StrFormat("tests/tracker/pattern/calls/%s.calls", floors.name));
  ASSERT_TRUE(calls.ok()) << calls.status();
  const auto half = static_cast<ptrdiff_t>(calls->size() / 2);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  program.Run(Calls(calls->begin(), calls->begin() + half));
  const Score first = program.TakeScore();
  program.Run(Calls(calls->begin() + half, calls->end()));
  const Score second = program.TakeScore();
  const Score whole = first + second;
  const std::string row = absl::StrFormat(
      "| %s | %d | %d | %.1f | %.1f | %.1f | %.1f | %.0f |", floors.name, calls->size(),
      pattern.stats().departures, 100 * whole.coverage(), 100 * whole.precision(),
      100 * second.coverage(), 100 * second.precision(), 100 * second.time_error());
  testing::Test::RecordProperty("row", row);
  GTEST_LOG_(INFO) << row;
  EXPECT_GE(whole.precision(), floors.precision) << whole.Text();
  EXPECT_GE(whole.coverage(), floors.coverage) << whole.Text();
  EXPECT_GE(second.precision(), floors.second_precision) << second.Text();
  EXPECT_GE(second.coverage(), floors.second_coverage) << second.Text();
  EXPECT_LE(second.time_error(), floors.second_time_error) << second.Text();
  EXPECT_LE(pattern.stats().departures, floors.departures);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, RecordedTest,
    testing::Values(Floors{"resnet18_train_eval", 0.94, 0.91, 0.97, 0.99, 0.2, 33},
                    Floors{"gpt2_two_lengths", 0.98, 0.95, 0.995, 0.99, 0.35, 34},
                    Floors{"gan_alternating", 0.96, 0.91, 0.995, 0.99, 0.3, 15},
                    Floors{"accumulation_of_four", 0.98, 0.94, 0.995, 0.99, 0.2, 27},
                    Floors{"lstm_cells", 0.98, 0.97, 0.995, 0.99, 0.3, 27}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CallFileTest, AMissingFileIsNotAnEmptyOne) {
  EXPECT_EQ(ReadCalls("tests/tracker/pattern/calls/none.calls").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ebbtide
