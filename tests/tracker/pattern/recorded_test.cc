// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "gtest/gtest.h"
#include "tests/tracker/pattern/call_file.h"
#include "tests/tracker/pattern/scored_program.h"
namespace ebbtide { namespace {
TEST(A, B) {
 for (const char* n : {"resnet18_train_eval", "gpt2_two_lengths", "gan_alternating", "accumulation_of_four", "lstm_cells"}) {
  auto calls = ReadCalls(std::string("tests/tracker/pattern/calls/") + n + ".calls");
  ASSERT_TRUE(calls.ok()) << calls.status();
  AccessPattern p; ScoredProgram s(&p);
  size_t chunk = calls->size() / 10;
  for (size_t i = 0; i < calls->size(); ++i) { s.Run((*calls)[i]);
    if (i % chunk == chunk - 1) fprintf(stderr, "%s %zu: %s  period %ld dep %ld ung %ld stored %ld\n", n, i, s.TakeScore().Text().c_str(), p.period(), p.stats().departures, p.stats().unguided, p.stored_patterns()); }
 }
}
}}
