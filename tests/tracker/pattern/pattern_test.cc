// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/pattern.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/tracker/pattern/programs.h"
#include "tests/tracker/pattern/scored_program.h"

namespace ebbtide {
namespace {

Calls TrainSteps(ChainProgram* program, int steps, int shape = 0) {
  Calls calls;
  for (int i = 0; i < steps; ++i) program->Train(shape, &calls);
  return calls;
}

TEST(PatternTest, IsKnownAfterTwoRepetitionsWhateverTheLength) {
  for (const int layers : {3, 4, 10, 100, 1000, 10'000}) {
    ChainProgram network(1, layers);
    AccessPattern pattern;
    ScoredProgram program(&pattern);
    program.Run(TrainSteps(&network, 2));
    program.TakeScore();
    const int64_t departures = pattern.stats().departures;
    program.Run(TrainSteps(&network, 3));
    const Score score = program.TakeScore();
    EXPECT_EQ(pattern.period(), 4 * layers + 2);
    EXPECT_EQ(pattern.stats().departures, departures) << layers;
    // What was touched last before the pattern was known may be answered by staleness.
    EXPECT_GT(score.exact, 25 * layers);
    EXPECT_EQ(score.wrong + score.none_wrong, 0) << layers << ": " << score.Text();
    EXPECT_GT(score.coverage(), 0.85) << layers << ": " << score.Text();
    EXPECT_LT(score.time_error(), 0.1) << layers << ": " << score.Text();
  }
}

TEST(PatternTest, AnIterationLongerThanTheMemoryIsNotPretended) {
  ChainProgram network(1, 1000);
  AccessPattern pattern({.memory_max = Bytes(64 << 10)});
  ScoredProgram program(&pattern);
  program.Run(TrainSteps(&network, 4));
  const Score score = program.TakeScore();
  EXPECT_EQ(score.answered(), 0) << score.Text();
  EXPECT_FALSE(pattern.guided());
}

// The hard case: evaluation does nothing that the forward pass of training does not do as well.
TEST(PatternTest, TrainingAndEvaluationSideBySide) {
  ChainProgram network(2, 50);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  Calls epoch;
  for (int i = 0; i < 12; ++i) network.Train(0, &epoch);
  for (int i = 0; i < 5; ++i) network.Evaluate(0, &epoch);
  program.Run(epoch);
  program.TakeScore();
  const int64_t departures = pattern.stats().departures;
  for (const int steps : {7, 3, 10}) {  // never as many as before
    program.Run(TrainSteps(&network, steps));
    Calls evaluation;
    for (int i = 0; i <= steps; ++i) network.Evaluate(0, &evaluation);
    program.Run(evaluation);
  }
  EXPECT_LE(pattern.stats().departures - departures, 12);
  const Score score = program.TakeScore();
  EXPECT_GT(score.precision(), 0.9) << score.Text();
  EXPECT_GT(score.coverage(), 0.95) << score.Text();
}

TEST(PatternTest, APatternComesBackFromTheStoreAfterTheRingHasForgottenIt) {
  ChainProgram training(3, 20);
  ChainProgram other(4, 20, 1000);
  AccessPattern pattern({.memory_max = Bytes(256 << 10)});
  ScoredProgram program(&pattern);
  program.Run(TrainSteps(&other, 3));
  program.Run(TrainSteps(&training, 200));
  ASSERT_GE(pattern.stored_patterns(), 1);
  program.TakeScore();
  program.ForgetOpen();
  Calls again = TrainSteps(&other, 2);
  const Calls first(again.begin(), again.begin() + PeriodFinder::kWindow);
  program.Run(first);
  EXPECT_TRUE(pattern.guided());
  EXPECT_EQ(pattern.period(), 82);
  again.erase(again.begin(), again.begin() + PeriodFinder::kWindow);
  program.Run(again);
  const Score score = program.TakeScore();
  EXPECT_GT(score.precision(), 0.99) << score.Text();
  EXPECT_GT(score.coverage(), 0.8) << score.Text();
}

TEST(PatternTest, TwoLengthsInAnyOrder) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    ChainProgram network(5, 40);
    std::mt19937 draw(seed);
    AccessPattern pattern;
    ScoredProgram program(&pattern);
    for (int i = 0; i < 60; ++i) {
      if (i == 20) program.TakeScore();
      Calls calls;
      network.Train(1 + static_cast<int>(draw() % 2), &calls);
      program.Run(calls);
    }
    const Score score = program.TakeScore();
    EXPECT_GT(score.precision(), 0.95) << seed << ": " << score.Text();
    EXPECT_GT(score.coverage(), 0.95) << seed << ": " << score.Text();
  }
}

TEST(PatternTest, StepsThatAlternateAreOnePattern) {
  ChainProgram discriminator(6, 30);
  ChainProgram generator(7, 20, 1000);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  for (int i = 0; i < 9; ++i) {
    if (i == 3) program.TakeScore();
    program.Run(TrainSteps(&discriminator, 2));
    program.Run(TrainSteps(&generator, 1));
  }
  const Score score = program.TakeScore();
  EXPECT_EQ(pattern.period(), 2 * 122 + 82);
  EXPECT_EQ(score.wrong + score.none_wrong, 0) << score.Text();
  EXPECT_GT(score.coverage(), 0.99) << score.Text();
}

TEST(PatternTest, AccumulationIsOnePatternThoughItsStepsAreToo) {
  for (const int micro_steps : {2, 4, 16}) {
    ChainProgram network(8, 25);
    AccessPattern pattern;
    ScoredProgram program(&pattern);
    for (int i = 0; i < 8; ++i) {
      if (i == 3) program.TakeScore();
      Calls calls;
      network.ZeroGradients(&calls);
      for (int j = 0; j < micro_steps; ++j) network.MicroStep(0, &calls);
      network.Optimize(&calls);
      program.Run(calls);
    }
    const Score score = program.TakeScore();
    EXPECT_EQ(pattern.period(), 50 + micro_steps * 52);
    EXPECT_EQ(score.wrong + score.none_wrong, 0) << micro_steps << ": " << score.Text();
    EXPECT_GT(score.coverage(), 0.9) << micro_steps << ": " << score.Text();
  }
}

TEST(PatternTest, ADepartureIsNoticedAtTheVeryCall) {
  ChainProgram network(9, 30);
  for (const int place : {0, 1, 17, 60, 100, 121}) {
    AccessPattern pattern;
    ScoredProgram program(&pattern);
    program.Run(TrainSteps(&network, 5));
    Calls iteration = TrainSteps(&network, 1);
    program.Run(Calls(iteration.begin(), iteration.begin() + place));
    ASSERT_TRUE(pattern.guided());
    ASSERT_EQ(pattern.NextUse(program.track(0)).kind, Forecast::kExpected);
    const int64_t departures = pattern.stats().departures;
    RecordedCall other;
    other.signature = 12345;
    program.Run(other);
    EXPECT_EQ(pattern.stats().departures, departures + 1);
    EXPECT_FALSE(pattern.guided());
    EXPECT_EQ(pattern.NextUse(program.track(0)).kind, Forecast::kUnknown);
    // And that the pattern holds again, within a few calls.
    const Calls next = TrainSteps(&network, 1);
    iteration.insert(iteration.end(), next.begin(), next.end());
    program.Run(Calls(iteration.begin() + place, iteration.begin() + place + 8));
    EXPECT_TRUE(pattern.guided());
    program.Run(Calls(iteration.begin() + place + 8, iteration.end()));
    program.Run(TrainSteps(&network, 1));
    program.Run(TrainSteps(&network, 2));
    EXPECT_EQ(pattern.period(), 122);
    // The iteration with that call in it is a precedent as well, for one turn or two.
    EXPECT_LE(pattern.stats().departures, departures + 3);
    const Forecast forecast = pattern.NextUse(program.track(0));
    EXPECT_EQ(forecast.kind, Forecast::kExpected);
  }
}

TEST(PatternTest, MemoryIsBoundedAndTheLatestPatternsStay) {
  constexpr int64_t kMax = 512 << 10;
  AccessPattern pattern({.memory_max = Bytes(kMax)});
  ScoredProgram program(&pattern);
  for (int i = 0; i < 300; ++i) {
    ChainProgram network(100 + i, 20 + i % 50, 1000 * i);
    program.Run(TrainSteps(&network, 3));
    ASSERT_LE(pattern.memory_bytes(), kMax) << i;
  }
  EXPECT_GT(pattern.stored_patterns(), 3);
  EXPECT_LT(pattern.stored_patterns(), 100);
  program.TakeScore();
  program.ForgetOpen();
  for (int i = 299; i > 295; --i) {
    ChainProgram network(100 + i, 20 + i % 50, 1000 * i);
    program.Run(TrainSteps(&network, 1));
  }
  const Score score = program.TakeScore();
  EXPECT_GT(score.coverage(), 0.6) << score.Text();
  EXPECT_GT(score.precision(), 0.9) << score.Text();
}

TEST(PatternTest, AMarkTellsApartWhatBeginsAlike) {
  for (const bool marked : {false, true}) {
    ChainProgram network(10, 40);
    AccessPattern pattern;
    ScoredProgram program(&pattern);
    const auto micro_step = [&] {
      if (marked) program.Mark(1);
      Calls calls;
      network.MicroStep(0, &calls);
      program.Run(calls);
    };
    const auto evaluate = [&] {
      if (marked) program.Mark(2);
      Calls calls;
      network.Evaluate(0, &calls);
      program.Run(calls);
    };
    for (int i = 0; i < 5; ++i) micro_step();
    evaluate();
    for (int i = 0; i < 5; ++i) micro_step();
    program.TakeScore();
    // Without a mark this is taken for one more micro-step, until its backward pass does not come.
    evaluate();
    micro_step();
    const Score score = program.TakeScore();
    if (marked) {
      EXPECT_EQ(score.none_wrong, 0) << score.Text();
      EXPECT_GT(score.precision(), 0.9) << score.Text();
    } else {
      EXPECT_LT(score.precision(), 0.9) << score.Text();
    }
  }
}

TEST(PatternTest, AMarkIsKnownFromItsFirstCallAfterOneRepetition) {
  ChainProgram network(11, 40);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  pattern.Mark(7);
  EXPECT_FALSE(pattern.guided());
  program.Run(TrainSteps(&network, 1));
  pattern.Mark(7);
  EXPECT_TRUE(pattern.guided());
  EXPECT_EQ(pattern.period(), 163);
  for (uint64_t label = 0; label < 1000; ++label) pattern.Mark(label);  // bounded
}

TEST(PatternTest, APauseIsNotLearned) {
  ChainProgram network(12, 30);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  program.Run(TrainSteps(&network, 6));
  const Forecast before = pattern.NextUse(program.track(3));
  ASSERT_EQ(before.kind, Forecast::kExpected);
  Calls paused = TrainSteps(&network, 1);
  for (size_t i = 0; i < paused.size(); i += 50) paused[i].duration = std::chrono::seconds(1);
  program.Run(paused);
  const Forecast after = pattern.NextUse(program.track(3));
  ASSERT_EQ(after.kind, Forecast::kExpected);
  EXPECT_EQ(after.calls, before.calls);
  EXPECT_LT(ToSeconds(after.time), 1.5 * ToSeconds(before.time));
  EXPECT_GE(after.error, before.error);
}

TEST(PatternTest, TimesFollowAMachineThatGetsSlowerOrFaster) {
  ChainProgram network(13, 30);
  AccessPattern pattern;
  ScoredProgram program(&pattern);
  program.Run(TrainSteps(&network, 4));
  for (const int factor : {5, 1}) {
    for (int i = 0; i < 16; ++i) {
      if (i == 15) program.TakeScore();
      Calls calls = TrainSteps(&network, 1);
      for (RecordedCall& call : calls) call.duration *= factor;
      program.Run(calls);
    }
    const Score score = program.TakeScore();
    EXPECT_LT(score.time_error(), 0.15) << factor << ": " << score.Text();
  }
}

// A batch that is loaded an iteration ahead is used more than a turn after it was made.
TEST(PatternTest, AUseMoreThanATurnAwayIsPredicted) {
  AccessPattern pattern;
  std::vector<UseTrack> batches(8);
  int64_t now = 0;
  Forecast forecast;
  for (int turn = 0; turn < 8; ++turn) {
    for (uint64_t call = 0; call < 20; ++call) {
      std::vector<Access> accesses;
      if (call == 3) accesses = {{&batches[turn], Touch::kMade}};
      if (call == 9 && turn > 0) accesses = {{&batches[turn - 1], Touch::kRead}};
      pattern.OnCall(call, accesses, Nanos(now += 100));
      if (call == 3) forecast = pattern.NextUse(batches[turn]);
    }
  }
  EXPECT_EQ(forecast.kind, Forecast::kExpected);
  EXPECT_EQ(forecast.calls, 26);
  EXPECT_EQ(forecast.time, Nanos(2600));
}

// add(x, x) and add(x, y) look alike; the places of what they touch do not.
TEST(PatternTest, AlikeCallsWithOtherNumbersOfValuesAreNotMixedUp) {
  AccessPattern pattern;
  std::vector<UseTrack> values(3);
  std::mt19937 draw(1);
  int64_t now = 0;
  for (int turn = 0; turn < 200; ++turn) {
    for (uint64_t call = 0; call < 24; ++call) {
      std::vector<Access> accesses;
      const size_t count = draw() % 4;
      for (size_t i = 0; i < count; ++i) accesses.push_back({&values[i], Touch::kRead});
      pattern.OnCall(call, accesses, Nanos(++now));
      for (const UseTrack& value : values) {
        const Forecast forecast = pattern.NextUse(value);
        if (forecast.kind != Forecast::kExpected) continue;
        ASSERT_GE(forecast.calls, 1);
        ASSERT_GE(forecast.time, Nanos(1));
      }
    }
  }
  EXPECT_EQ(pattern.period(), 24);
}

// No order of calls, marks, drops and questions does harm, and what a value's track says is true.
TEST(PatternTest, AnySequenceIsSurvived) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 draw(seed);
    AccessPattern pattern({.memory_max = Bytes(64 << 10)});
    std::vector<UseTrack> values(50);
    int64_t now = 0;
    const uint32_t distinct = 1 + draw() % 40;
    for (int i = 0; i < 30'000; ++i) {
      std::vector<Access> accesses;
      const size_t first = draw() % values.size();
      for (size_t j = first; j < std::min(first + draw() % 9, values.size()); ++j) {
        accesses.push_back({&values[j], draw() % 3 == 0 ? Touch::kMade : Touch::kRead});
      }
      // Mostly in order, so that patterns come and go.
      const uint64_t signature = draw() % 50 == 0 ? draw() : i % distinct;
      pattern.OnCall(signature, accesses, Nanos(now += draw() % 1000));
      for (const Access& access : accesses) ASSERT_EQ(access.value->last_use, Nanos(now));
      if (draw() % 100 == 0) pattern.Mark(draw() % 100);
      if (draw() % 10 == 0) pattern.OnDropped(values[draw() % values.size()]);
      const Forecast forecast = pattern.NextUse(values[draw() % values.size()]);
      if (forecast.kind == Forecast::kExpected) {
        ASSERT_GE(forecast.calls, 1);
        ASSERT_GE(forecast.time, Nanos(1));
      }
      ASSERT_LE(pattern.memory_bytes(), 64 << 10);
    }
  }
}

}  // namespace
}  // namespace ebbtide
