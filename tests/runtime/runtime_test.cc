// SPDX-License-Identifier: Apache-2.0
//
// One test for each rule by which results stay exact, seen from outside through BufferSession.

#include "runtime/runtime.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/session_fixture.h"

namespace ebbtide {
namespace {

using RuntimeTest = SessionFixture;
using WriteRules = SessionFixture;
using BudgetRules = SessionFixture;

TEST_F(RuntimeTest, AnEvictedValueComesBackWhenItIsRead) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 2);
  EXPECT_EQ(stats().rematerializer.evictions, 1);
  EXPECT_EQ(stats().candidate_bytes, Bytes(0));
  EXPECT_EQ(Read(y), 3u);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(stats().rematerializer.rebuilds, 1);
}

TEST_F(RuntimeTest, AncestorsThatAreGoneAreRebuiltFirst) {
  Start(EvictAll());
  Buffer last = Source(1);
  for (int i = 0; i < 5; ++i) last = Add({last}, 1);
  runs_ = 0;
  const int64_t before = stats().rematerializer.rebuilds;
  EXPECT_EQ(Read(last), 6u);
  EXPECT_EQ(runs_, 5);
  EXPECT_EQ(stats().rematerializer.rebuilds, before + 1) << "the others have no storage any more";
}

// Kept as candidates, they would look fresh and push out what the program waits for.
TEST_F(RuntimeTest, WhatARebuildMakesOnTheWayGoesAsSoonAsItIsRead) {
  Start(EvictAll());
  Buffer last = Source(1);
  for (int i = 0; i < 5; ++i) last = Add({last}, 1);
  Bytes most(0);
  on_add_ = [&] { most = std::max(most, allocator_->stats().live); };
  ASSERT_TRUE(session_
                  ->Read(last,
                         [&](const void*) {
                           EXPECT_LE(allocator_->stats().live, Bytes(2 * (kBytes + 64)))
                               << "the source and the last";
                         })
                  .ok());
  EXPECT_LE(most, Bytes(3 * (kBytes + 64))) << "and the one before";
}

TEST_F(RuntimeTest, OneReplayMakesAllOutputs) {
  Start(EvictAll());
  const Buffer x = Source(5);
  int runs = 0;
  auto made = session_->Run({.name = "split",
                             .reads = {x},
                             .outputs = {Bytes(kBytes), Bytes(kBytes)},
                             .kernel = [&runs](const KernelArguments& a) {
                               ++runs;
                               Fill(a.outputs[0], kWords, *static_cast<const Word*>(a.reads[0]));
                               Fill(a.outputs[1], kWords, 7);
                               return absl::OkStatus();
                             }});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Read((*made)[1]), 7u);
  EXPECT_EQ(Read((*made)[0]), 5u);
  EXPECT_EQ(runs, 2);
}

TEST_F(RuntimeTest, SmallValuesAreSources) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer small = Add({x}, 2, 256);
  EXPECT_EQ(stats().recorded_calls, 0);
  const Buffer y = Add({small}, 1);
  EXPECT_EQ(Read(y), 4u);
  EXPECT_EQ(replays(), 1);
}

TEST_F(RuntimeTest, WhatMustNotRunTwiceMakesSources) {
  Start(EvictAll());
  const Buffer x = Source(1);
  int runs = 0;
  auto made = session_->Run({.name = "send",
                             .reads = {x},
                             .outputs = {Bytes(kBytes)},
                             .kernel =
                                 [&runs](const KernelArguments& a) {
                                   Fill(a.outputs[0], kWords, static_cast<Word>(++runs));
                                   return absl::OkStatus();
                                 },
                             .replayable = false});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Read((*made)[0]), 1u);
  EXPECT_EQ(runs, 1);
}

TEST_F(RuntimeTest, ARandomDrawIsTheSameWhenItIsReplayedAndLeavesTheEngineAlone) {
  Start(EvictAll());
  const auto draw = [this] {
    auto made = session_->Run(
        {.name = "draw", .outputs = {Bytes(kBytes)}, .kernel = [](const KernelArguments& a) {
           Fill(a.outputs[0], kWords, a.random());
           return absl::OkStatus();
         }});
    return (*made)[0];
  };
  std::mt19937_64 expected = session_->random();
  const Buffer a = draw();
  const Buffer b = draw();
  EXPECT_EQ(Read(a), expected());
  const Buffer c = draw();
  EXPECT_EQ(Read(b), expected());
  EXPECT_EQ(Read(c), expected());
  EXPECT_EQ(session_->random(), expected);
}

TEST_F(RuntimeTest, ADroppedSourceIsRetainedUntilNobodyNeedsIt) {
  Start(EvictAll());
  Buffer x = Source(1);
  Buffer y = Add({x}, 2);
  x = {};
  EXPECT_EQ(stats().retained_bytes, Bytes(kBytes));
  EXPECT_EQ(Read(y), 3u);
  y = {};
  EXPECT_EQ(stats().retained_bytes, Bytes(0));
  EXPECT_EQ(stats().live_values, 0u);
  EXPECT_EQ(allocator_->stats().live, Bytes(0));
}

TEST_F(RuntimeTest, ADroppedSourceIsNotKeptForLessThanFourTimesItsBytes) {
  Start(Calm());
  Buffer x = Source(1);
  const Buffer y = Add({x}, 2);
  x = {};
  EXPECT_EQ(stats().retained_bytes, Bytes(0));
  EXPECT_EQ(stats().live_calls, 0u) << "y is a source now";
  x = Source(1);
  const Buffer z = Add({x}, 3);
  const Buffer w = Add({x}, 4);
  const Buffer wide = Add({x}, 5, 2 * kBytes);
  x = {};
  EXPECT_EQ(stats().retained_bytes, Bytes(kBytes));
  EXPECT_EQ(Read(y), 3u);
  EXPECT_EQ(Read(z) + Read(w), 9u);
}

// A U-Net's weight gradients, evicted before the optimizer's step, kept activations of many times
// their size that way.
TEST_F(WriteRules, WhatARebuildLeftBehindDoesNotBecomeASource) {
  Start(EvictAll());
  const Buffer x = Source(1);
  Buffer large = Add({x}, 1, 8 * kBytes);
  const Buffer y = Add({large}, 1);
  const Buffer z = Add({large}, 2);
  large = Buffer();
  EXPECT_EQ(Read(y), 3u);  // makes `large` again, which z, still evicted, may read
  Write(x, 100);
  EXPECT_EQ(stats().retained_bytes, Bytes(0));
  EXPECT_EQ(Read(z), 4u);
  EXPECT_EQ(Read(y), 3u);
}

TEST_F(WriteRules, AnEvictedDependentIsRebuiltBeforeItsSourceIsOverwritten) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 2);
  Write(x, 10);
  EXPECT_EQ(replays(), 1);
  EXPECT_EQ(Read(y), 3u);
  EXPECT_EQ(replays(), 1) << "it is a source now";
  EXPECT_EQ(Read(x), 10u);
  EXPECT_EQ(stats().live_calls, 0u);
}

TEST_F(WriteRules, TheSourceIsCopiedIfWhatDependsOnItDoesNotFit) {
  // Room for the larger of both calls, but not for all three buffers.
  Start(EvictAll(), Bytes(kBytes * 11 / 8));
  Buffer x = Source(1, kBytes / 4);
  const Buffer y = Add({x}, 2);
  Write(x, 10);
  EXPECT_EQ(replays(), 0);
  EXPECT_EQ(stats().retained_bytes, Bytes(kBytes / 4));
  x = {};
  EXPECT_EQ(Read(y), 3u);
  EXPECT_EQ(replays(), 1);
}

TEST_F(WriteRules, SmallSourcesAreCopiedOnlyIfSomebodyReadsThem) {
  RuntimeConfig config = Calm();
  config.copy_limit = Bytes(kBytes);
  Start(config);
  const Buffer x = Source(1);
  Write(x, 2);
  EXPECT_EQ(stats().retained_bytes, Bytes(0));
  const Buffer y = Add({x}, 2);
  Write(x, 10);
  EXPECT_EQ(stats().retained_bytes, Bytes(kBytes));
  EXPECT_EQ(stats().candidate_bytes, Bytes(kBytes)) << "y can still leave";
  session_->runtime().RelievePressure(Bytes(1));
  EXPECT_EQ(Read(y), 4u);
}

TEST_F(WriteRules, DependentsInMemoryBecomeSources) {
  Start(Calm());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 2);
  Write(x, 10);
  EXPECT_EQ(replays(), 0);
  EXPECT_EQ(stats().candidate_bytes, Bytes(0));
  EXPECT_FALSE(session_->runtime().RelievePressure(Bytes(1)));
  EXPECT_EQ(Read(y), 3u);
}

TEST_F(WriteRules, AnOverwrittenValueWithACallForcesNothing) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer z = Add({y}, 1);
  const int64_t before = replays();
  Write(y, 50);
  EXPECT_EQ(replays(), before + 1) << "y itself, which may be written in part";
  EXPECT_EQ(Read(z), 3u);
  EXPECT_EQ(Read(y), 50u);
}

TEST_F(WriteRules, InPlaceCallsReplayOnACopy) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer before = Add({y}, 0);
  Scale({y}, 10);
  const Buffer between = Add({y}, 0);
  Scale({y}, 10, {x});
  EXPECT_EQ(Read(y), 201u);
  EXPECT_EQ(Read(between), 20u);
  EXPECT_EQ(Read(before), 2u);
  EXPECT_EQ(Read(y), 201u);
}

TEST_F(WriteRules, ASourceUpdatedInPlaceStaysASource) {
  Start(EvictAll());
  const Buffer parameter = Source(1);
  for (int i = 0; i < 3; ++i) Scale({parameter}, 2);
  EXPECT_EQ(Read(parameter), 8u);
  EXPECT_EQ(stats().recorded_calls, 0);
  EXPECT_EQ(stats().live_values, 1u);
}

TEST_F(WriteRules, AnInPlaceChainEndsAtItsLimit) {
  RuntimeConfig config = Calm();
  config.max_chain = 3;
  Start(config);
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 0);
  for (int i = 0; i < 3; ++i) Scale({y}, 2);
  EXPECT_EQ(stats().recorded_calls, 4);
  EXPECT_EQ(stats().candidate_bytes, Bytes(kBytes));
  Scale({y}, 2);
  EXPECT_EQ(stats().recorded_calls, 4);
  EXPECT_EQ(stats().live_values, 2u) << "history is forgotten";
  EXPECT_EQ(Read(y), 16u);
}

// Like running statistics: the call writes an argument that is none of its outputs.
TEST_F(WriteRules, ASilentlyWrittenArgumentIsNotWrittenByAReplay) {
  RuntimeConfig config = EvictAll();
  config.copy_limit = Bytes(kBytes);
  Start(config);
  const Buffer statistics = Source(1);
  const auto norm = [&] {
    auto made = session_->Run({.name = "norm",
                               .writes = {statistics},
                               .outputs = {Bytes(kBytes)},
                               .kernel = [](const KernelArguments& a) {
                                 const Word word = *static_cast<Word*>(a.writes[0]);
                                 Fill(a.outputs[0], kWords, word + 100);
                                 Fill(a.writes[0], kWords, word + 1);
                                 return absl::OkStatus();
                               }});
    return (*made)[0];
  };
  const Buffer first = norm();
  const Buffer second = norm();
  EXPECT_EQ(stats().recorded_calls, 2);
  EXPECT_EQ(Read(first), 101u);
  EXPECT_EQ(Read(second), 102u);
  EXPECT_EQ(replays(), 2);
  EXPECT_EQ(Read(statistics), 3u);
}

TEST_F(WriteRules, ASourceAndWhatWasMadeFromItMayBeWrittenTogether) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer z = Add({y}, 1);
  Scale({x, y}, 5);
  EXPECT_EQ(Read(z), 3u);
  EXPECT_EQ(Read(y), 10u);
  EXPECT_EQ(Read(x), 5u);
}

TEST_F(WriteRules, AFailedKernelMayHaveWrittenAnything) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer z = Add({y}, 1);
  bool fails = true;
  const BufferOperation half{
      .name = "half", .writes = {y}, .kernel = [&fails](const KernelArguments& a) {
        Fill(a.writes[0], kWords, 77);
        return fails ? absl::AbortedError("no") : absl::OkStatus();
      }};
  EXPECT_TRUE(absl::IsAborted(session_->Run(half).status()));
  EXPECT_EQ(Read(y), 77u);
  EXPECT_EQ(Read(z), 3u);
  fails = false;
  EXPECT_TRUE(session_->Run(half).ok()) << "the same call succeeds when repeated";
}

TEST_F(RuntimeTest, APinnedBufferStaysThroughWrites) {
  Start(EvictAll());
  const Buffer y = Add({Source(1)}, 1);
  const auto status = session_->Read(y, [&](const void* memory) {
    const Word* const word = static_cast<const Word*>(memory);
    EXPECT_EQ(*word, 2u);
    Scale({y}, 3);
    allocator_->ReleaseCached(Bytes::Max());
    EXPECT_EQ(*word, 6u);
    Scale({y}, 3);
    allocator_->ReleaseCached(Bytes::Max());
    EXPECT_EQ(*word, 18u);
  });
  EXPECT_TRUE(status.ok());
}

TEST_F(RuntimeTest, AnEscapedBufferStaysAndWhatWasComputedFromItIsSafe) {
  Start(EvictAll());
  const Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer z = Add({y}, 1);
  const Buffer w = Add({x}, 7);
  for (const Buffer& buffer : {x, y}) {
    auto address = session_->Escape(buffer);
    ASSERT_TRUE(address.ok());
    Fill(*address, kWords, 1000);
  }
  EXPECT_EQ(stats().escaped_bytes, Bytes(2 * kBytes));
  EXPECT_EQ(Read(w), 8u);
  EXPECT_EQ(Read(z), 3u);
  EXPECT_EQ(Read(y), 1000u);
  const int64_t recorded = stats().recorded_calls;
  const Buffer later = Add({x}, 1);
  EXPECT_EQ(stats().recorded_calls, recorded) << "its input may change unseen";
  EXPECT_EQ(Read(later), 1001u);
}

TEST_F(RuntimeTest, VerifyNamesAnOperatorThatGivesOtherBytes) {
  RuntimeConfig config = EvictAll();
  config.verify = true;
  Start(config);
  const Buffer good = Add({Source(1)}, 1);
  Word calls = 0;
  auto made = session_->Run({.name = "restless",
                             .outputs = {Bytes(kBytes)},
                             .kernel = [&calls](const KernelArguments& a) {
                               Fill(a.outputs[0], kWords, ++calls);
                               return absl::OkStatus();
                             }});
  ASSERT_TRUE(made.ok());
  const auto status = session_->Read((*made)[0], [](const void*) { FAIL(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("restless"), absl::string_view::npos) << status;
  EXPECT_EQ(Read(good), 2u);
  EXPECT_EQ(stats().rematerializer.verified, 1);
}

TEST_F(RuntimeTest, AFailingReplayLeavesEverythingConsistent) {
  Start(EvictAll());
  const Buffer x = Source(1);
  bool fails = false;
  auto made = session_->Run({.name = "moody",
                             .reads = {x},
                             .outputs = {Bytes(kBytes)},
                             .kernel = [&fails](const KernelArguments& a) {
                               Fill(a.outputs[0], kWords, 9);
                               return fails ? absl::AbortedError("not now") : absl::OkStatus();
                             }});
  const Buffer y = (*made)[0];
  const Buffer z = Add({y}, 1);
  fails = true;
  for (const Buffer& buffer : {y, z}) {
    EXPECT_TRUE(absl::IsAborted(session_->Read(buffer, [](const void*) { FAIL(); })));
  }
  EXPECT_TRUE(absl::IsAborted(TryAdd({x, z}, 0).status()));
  fails = false;
  EXPECT_EQ(Read(z), 10u);
  EXPECT_EQ(Read(y), 9u);
}

TEST_F(RuntimeTest, AHundredThousandCallsDeep) {
  RuntimeConfig config = Calm();
  config.max_depth = 1'000'000;
  Start(config);
  Buffer last = Add({}, 0, 4104);
  for (int i = 0; i < 100'000; ++i) last = Add({last}, 1, 4104);
  EXPECT_EQ(stats().live_calls, 100'001u);
  runs_ = 0;
  EXPECT_TRUE(session_->runtime().RelievePressure(Bytes(1)));
  EXPECT_EQ(Read(last), 100'000u);
  EXPECT_EQ(runs_, 100'001);
  last = {};
  EXPECT_EQ(stats().live_values, 0u);
}

TEST_F(RuntimeTest, HistoryIsCutAtItsDepth) {
  RuntimeConfig config = EvictAll();
  config.max_depth = 10;
  Start(config);
  Buffer last = Source(0);
  for (int i = 0; i < 100; ++i) last = Add({last}, 1);
  EXPECT_LE(stats().live_calls, 10u);
  EXPECT_EQ(Read(last), 100u);
}

TEST_F(BudgetRules, PressureEvictsAndRebuildsWithinTheBudget) {
  Start(Calm(), Bytes(6 * kBytes));
  const Buffer x = Source(1);
  std::vector<Buffer> made;
  for (Word i = 0; i < 20; ++i) made.push_back(Add({x}, i));
  for (Word i = 0; i < 20; ++i) EXPECT_EQ(Read(made[i]), 1 + i);
  EXPECT_GT(stats().rematerializer.rebuilds, 10);
  EXPECT_LE(allocator_->stats().peak_held, Bytes(6 * kBytes));
  EXPECT_GE(stats().largest_pinned, Bytes(kBytes));
}

TEST_F(BudgetRules, AnArgumentIsNotEvictedForTheNextOne) {
  Start(Calm(), Bytes(5 * kBytes));
  const Buffer x = Source(1);
  std::vector<Buffer> made;
  for (Word i = 0; i < 12; ++i) made.push_back(Add({x}, i));
  EXPECT_EQ(Read(Add({made[0], made[1], made[2]}, 0)), 1u + 2 + 3);
}

TEST_F(BudgetRules, WhatCannotFitIsNoticedBeforeAnythingRuns) {
  Start(Calm(), Bytes(8 * kBytes));
  Buffer x = Source(1);
  std::vector<Buffer> parts;
  for (Word i = 0; i < 3; ++i) parts.push_back(Add({x}, i));
  const Buffer sum = Add(parts, 0);  // 3 inputs and an output beside the source
  parts.clear();
  session_->runtime().RelievePressure(Bytes(kBytes));
  std::vector<Buffer> sources;
  for (Word i = 0; i < 5; ++i) sources.push_back(Source(i));
  runs_ = 0;
  const auto status = session_->Read(sum, [](const void*) { FAIL(); });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(runs_, 0);
  sources.pop_back();
  sources.pop_back();
  EXPECT_EQ(Read(sum), 6u);
}

// The call's other arguments cannot leave meanwhile: without them in the sum, replays would run for
// nothing before one of them fails.
TEST_F(BudgetRules, WhatTheCallHasPinnedCountsBeforeAnythingRuns) {
  Start(Calm(), Bytes(8 * kBytes));
  const Buffer x = Source(1);
  std::vector<Buffer> parts;
  for (Word i = 0; i < 3; ++i) parts.push_back(Add({x}, i));
  const Buffer sum = Add(parts, 0);  // 3 inputs and an output beside the source
  parts.clear();
  session_->runtime().RelievePressure(Bytes(kBytes));
  std::vector<Buffer> arguments;
  for (Word i = 0; i < 4; ++i) arguments.push_back(Add({x}, i));
  arguments.push_back(sum);
  runs_ = 0;
  const auto made = TryAdd(arguments, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(made.status())) << made.status();
  EXPECT_EQ(runs_, 0);
  arguments.erase(arguments.begin());
  EXPECT_EQ(Read(Add(arguments, 0)), 2u + 3 + 4 + 6);
}

TEST_F(BudgetRules, ALongChainNeedsRoomForTwoValuesOnly) {
  Start(Calm(), Bytes(4 * kBytes));
  Buffer last = Source(1);
  for (int i = 0; i < 200; ++i) last = Add({last}, 1);
  session_->runtime().RelievePressure(Bytes::Max());
  EXPECT_EQ(Read(last), 201u);
  EXPECT_LE(allocator_->stats().peak_held, Bytes(4 * kBytes));
}

TEST_F(BudgetRules, RetainedSourcesAreSettledAsALastResort) {
  Start(Calm(), Bytes(6 * kBytes));
  Buffer x = Source(1);
  const Buffer y = Add({x}, 1, 4 * kBytes);
  x = {};
  const auto in_use = session_->Read(y, [&](const void*) {
    const Buffer a = Source(5);
    EXPECT_EQ(stats().retained_bytes, Bytes(kBytes));
    // Nothing else can leave.
    const Buffer b = Source(6);
    EXPECT_EQ(stats().retained_bytes, Bytes(0));
  });
  EXPECT_TRUE(in_use.ok());
  EXPECT_EQ(stats().live_calls, 0u);
  EXPECT_EQ(Read(y), 2u);
}

TEST_F(BudgetRules, AfterRunningOutTheProgramGoesOn) {
  Start(Calm(), Bytes(5 * kBytes));
  std::vector<Buffer> sources;
  for (Word i = 0; i < 4; ++i) sources.push_back(Source(i));
  const Buffer y = Add({sources[0]}, 10);
  EXPECT_TRUE(absl::IsResourceExhausted(TryAdd({sources[1], y}, 0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(session_->NewBuffer(Bytes(2 * kBytes)).status()));
  sources.pop_back();
  EXPECT_EQ(Read(Add({sources[1], y}, 0)), 11u);
  EXPECT_EQ(Read(y), 10u);
}

// Two calls of two threads that do not fit together: `first` runs until it may end.
class TwoThreads : public BudgetRules {
 protected:
  void Prepare(Nanos patience) {
    RuntimeConfig config = Calm();
    config.patience = patience;
    Start(config, Bytes(8 * kBytes));
    x_ = Source(1);
    for (Word i = 0; i < 6; ++i) made_.push_back(Add({x_}, i));
  }
  // Needs half of the budget until `may_end`.
  void RunFirst(const std::function<bool()>& may_end) {
    const std::vector<Buffer> reads(made_.begin(), made_.begin() + 3);
    const auto made = session_->Run({.name = "first",
                                     .reads = reads,
                                     .outputs = {Bytes(kBytes)},
                                     .kernel = [&](const KernelArguments&) {
                                       first_runs_ = true;
                                       while (!may_end()) std::this_thread::yield();
                                       first_ended_ = true;
                                       return absl::OkStatus();
                                     }});
    EXPECT_TRUE(made.ok()) << made.status();
  }
  absl::StatusOr<Buffer> RunSecond() {
    while (!first_runs_) std::this_thread::yield();
    second_begins_ = MonotonicNow();
    return TryAdd({made_[3], made_[4], made_[5]}, 0);
  }

  Buffer x_;
  std::vector<Buffer> made_;
  std::atomic<bool> first_runs_{false};
  std::atomic<bool> first_ended_{false};
  std::atomic<Nanos> second_begins_{Nanos(0)};
};

TEST_F(TwoThreads, ACallThatFindsNoRoomWaitsForOneOfAnotherThread) {
  Prepare(std::chrono::hours(1));
  bool ended_before = false;
  on_add_ = [&] { ended_before = first_ended_; };
  std::thread first([&] {
    RunFirst([&] {
      const Nanos begun = second_begins_;
      return begun > Nanos(0) && MonotonicNow() > begun + std::chrono::milliseconds(50);
    });
  });
  const auto made = RunSecond();
  first.join();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(ended_before);
  EXPECT_EQ(Read(*made), 4u + 5 + 6);
}

// The other may be waiting for this thread.
TEST_F(TwoThreads, ACallThatFindsNoRoomDoesNotWaitForEver) {
  Prepare(std::chrono::milliseconds(20));
  std::atomic<bool> second_failed{false};
  std::thread first([&] { RunFirst([&] { return second_failed.load(); }); });
  const auto made = RunSecond();
  second_failed = true;
  first.join();
  EXPECT_TRUE(absl::IsResourceExhausted(made.status())) << made.status();
  EXPECT_EQ(Read(Add({made_[3], made_[4], made_[5]}, 0)), 4u + 5 + 6);
}

TEST_F(RuntimeTest, ThreadsWaitForEachOthersReplays) {
  Start(EvictAll());
  const Buffer x = Source(1);
  std::atomic<bool> slow{false};
  auto made = session_->Run({.name = "slow",
                             .reads = {x},
                             .outputs = {Bytes(kBytes)},
                             .kernel = [this, &slow](const KernelArguments& a) {
                               ++runs_;
                               const Word word = *static_cast<const Word*>(a.reads[0]);
                               if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
                               // Read again: a writer that did not wait would show.
                               EXPECT_EQ(*static_cast<const Word*>(a.reads[0]), word);
                               Fill(a.outputs[0], kWords, word);
                               return absl::OkStatus();
                             }});
  slow = true;
  runs_ = 0;
  const Buffer y = (*made)[0];
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back([&] { EXPECT_EQ(Read(y), 1u); });
  while (runs_ == 0) std::this_thread::yield();
  Write(x, 2);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(runs_, 1) << "one of them replays, the others wait";
  EXPECT_EQ(Read(y), 1u);
  EXPECT_EQ(Read(x), 2u);
}

TEST_F(RuntimeTest, HolderLinesNameTheAmounts) {
  Start(Calm());
  Buffer x = Source(1);
  const Buffer y = Add({x}, 1);
  const Buffer z = Add({x}, 2, 3 * kBytes);
  x = {};
  std::string text;
  for (const std::string& line : session_->runtime().HolderLines(Bytes(3 << 20))) {
    text += line + "\n";
  }
  EXPECT_NE(text.find("kept for rebuilding others: 32.00 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("could still be evicted: 128.00 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("(numpy, data_ptr, ...): 3.00 MiB"), std::string::npos) << text;
}

}  // namespace
}  // namespace ebbtide
