// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_streams.h"

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/allocator/stream_order_conformance.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using Event = StreamOrder::Event;

constexpr Nanos kSecond = std::chrono::seconds(1);

class SimulatedWorld : public StreamWorld {
 public:
  explicit SimulatedWorld(SimulatedStreams::Options options) : streams_(&device_, options) {}
  StreamOrder* order() override { return &streams_; }
  bool has_queues() const override { return true; }
  StreamId CreateStream() override { return streams_.CreateStream(); }
  void DestroyStream(StreamId stream) override { streams_.DestroyStream(stream); }
  // Time stands still until somebody waits: that lets go.
  void Hold(StreamId stream) override { streams_.Queue(stream, kSecond); }
  void LetGo() override {}

 private:
  SimulatedDevice device_{SimulatedDevice::Options()};
  SimulatedStreams streams_;
};

MakeWorld Make(SimulatedStreams::Options options) {
  return [options] { return std::make_unique<SimulatedWorld>(options); };
}

INSTANTIATE_TEST_SUITE_P(Exact, StreamOrderTest, testing::Values(Make({})));
INSTANTIATE_TEST_SUITE_P(Spread, StreamOrderTest,
                         testing::Values(Make({.seed = 7, .spread = 5}),
                                         Make({.seed = 8, .spread = 1.5})));

class SimulatedStreamsTest : public testing::Test {
 protected:
  SimulatedStreamsTest()
      : device_({.move = true, .latency = DriverLatency::A100()}),
        streams_(&device_),
        a_(streams_.CreateStream()),
        b_(streams_.CreateStream()),
        range_(device_.Reserve(64_MiB).value()) {
    EXPECT_TRUE(device_.Commit(range_, 32_MiB).ok());
  }
  ~SimulatedStreamsTest() override {
    streams_.CompleteAll();
    EXPECT_TRUE(device_.Unreserve(range_, 64_MiB).ok());
  }

  void* At(Bytes offset) { return static_cast<char*>(range_) + offset.count(); }
  bool Passed(Event event) { return streams_.IsDone(event); }
  Nanos Since(Nanos start) { return device_.now() - start; }

  SimulatedDevice device_;
  SimulatedStreams streams_;
  const StreamId a_, b_;
  void* const range_;
};

TEST_F(SimulatedStreamsTest, WorkTakesTheTimeThatItSays) {
  const Nanos start = device_.now();
  streams_.Queue(a_, Nanos(100));
  const Event first = streams_.Record(a_).value();
  streams_.Queue(a_, Nanos(50));
  const Event second = streams_.Record(a_).value();
  streams_.Advance(Nanos(99));
  EXPECT_FALSE(Passed(first));
  streams_.Advance(Nanos(1));
  EXPECT_TRUE(Passed(first));
  EXPECT_FALSE(Passed(second));
  streams_.Wait(second);
  EXPECT_EQ(Since(start), Nanos(150));
  streams_.Advance(Nanos(1000));
  streams_.Queue(a_, Nanos(10));  // an idle stream starts when it is given something
  streams_.CompleteAll();
  EXPECT_EQ(Since(start), Nanos(1160));
  for (Event event : {first, second}) streams_.Release(event);
}

TEST_F(SimulatedStreamsTest, StreamsRunSideBySideAndDuringDriverCalls) {
  const Nanos start = device_.now();
  streams_.Queue(a_, Nanos(100'000));
  streams_.Queue(b_, Nanos(300'000));
  const Event a = streams_.Record(a_).value();
  const Event b = streams_.Record(b_).value();
  ASSERT_TRUE(device_.Commit(At(32_MiB), 2_MiB).ok());
  EXPECT_EQ(Since(start), DriverLatency::A100().Commit());  // 231 us
  EXPECT_TRUE(Passed(a));
  EXPECT_FALSE(Passed(b));
  streams_.WaitForAll();
  EXPECT_EQ(Since(start), Nanos(300'000));
  for (Event event : {a, b}) streams_.Release(event);
}

TEST_F(SimulatedStreamsTest, AStreamWaitsForAnEventOfAnother) {
  const Nanos start = device_.now();
  streams_.Queue(a_, Nanos(500));
  const Event a = streams_.Record(a_).value();
  streams_.Queue(a_, Nanos(10'000));  // later work of the other stream is not waited for
  streams_.StreamWaitEvent(b_, a);
  streams_.Release(a);
  streams_.Queue(b_, Nanos(20));
  const Event b = streams_.Record(b_).value();
  streams_.Advance(Nanos(519));
  EXPECT_FALSE(Passed(b));
  streams_.Advance(Nanos(1));
  EXPECT_TRUE(Passed(b));
  streams_.Release(b);
  EXPECT_EQ(Since(start), Nanos(520));
}

TEST_F(SimulatedStreamsTest, AWaitForWhatIsOverDelaysNothing) {
  const Nanos start = device_.now();
  streams_.Queue(a_, Nanos(100));
  streams_.Queue(b_, Nanos(300));
  const Event a = streams_.Record(a_).value();
  streams_.StreamWaitEvent(b_, a);  // over by the time its turn comes
  streams_.Queue(b_, Nanos(1));
  streams_.StreamWaitEvent(a_, a);  // its own: the queue's order is enough
  streams_.Release(a);
  EXPECT_EQ(streams_.counters().pending, 4);
  streams_.WaitForAll();
  EXPECT_EQ(Since(start), Nanos(301));
}

TEST_F(SimulatedStreamsTest, AWaitMaySpanADestroyedStream) {
  const Nanos start = device_.now();
  streams_.Queue(a_, Nanos(100));
  const Event a = streams_.Record(a_).value();
  streams_.StreamWaitEvent(b_, a);
  streams_.DestroyStream(a_);
  streams_.Queue(b_, Nanos(5));
  EXPECT_EQ(streams_.counters().streams, 3);
  streams_.WaitForAll();
  EXPECT_TRUE(Passed(a));
  EXPECT_EQ(streams_.counters().streams, 2);
  streams_.StreamWaitEvent(b_, a);
  streams_.Release(a);
  EXPECT_EQ(Since(start), Nanos(105));
}

TEST_F(SimulatedStreamsTest, NoSeedCompletesWhatStillWaits) {
  for (int round = 0; round < 20; ++round) {
    streams_.Queue(a_, Nanos(100));
    const Event a = streams_.Record(a_).value();
    streams_.StreamWaitEvent(b_, a);
    const Event b = streams_.Record(b_).value();
    while (!Passed(b)) {
      EXPECT_GT(streams_.CompleteSome(), 0);
      EXPECT_TRUE(Passed(a) || !Passed(b));
    }
    for (Event event : {a, b}) streams_.Release(event);
  }
  streams_.Queue(a_, Nanos(100));
  streams_.Advance(Nanos(100));
  EXPECT_EQ(streams_.CompleteSome(), 0);  // it was over already
}

TEST_F(SimulatedStreamsTest, CountsWhatWasDone) {
  streams_.Queue(a_, Nanos(100));
  const Event first = streams_.Record(a_).value();
  const Event second = streams_.Record(a_).value();
  EXPECT_EQ(streams_.counters().live_events, 2);
  streams_.Wait(first);
  streams_.Wait(second);  // over: no wait
  streams_.WaitForAll();  // the same
  EXPECT_TRUE(Passed(first));
  streams_.Release(first);
  streams_.Release(second);
  for (int i = 0; i < 10; ++i) streams_.Release(streams_.Record(b_).value());
  streams_.DestroyStream(b_);
  const SimulatedStreams::Counters counters = streams_.counters();
  EXPECT_EQ(counters.streams, 2);
  EXPECT_EQ(counters.records, 12);
  EXPECT_EQ(counters.queries, 1);
  EXPECT_EQ(counters.waits, 1);
  EXPECT_EQ(counters.waited, Nanos(100));
  EXPECT_EQ(counters.completed, 1);
  EXPECT_EQ(counters.pending, 0);
  EXPECT_EQ(counters.live_events, 0);
  EXPECT_EQ(counters.pooled_events, 2);
}

TEST_F(SimulatedStreamsTest, RecordFailsAsTheDeviceIsTold) {
  device_.failures()->FailAt(DriverCall::kRecord, 2);
  const Event first = streams_.Record(a_).value();
  EXPECT_TRUE(absl::IsResourceExhausted(streams_.Record(a_).status()));
  const Event third = streams_.Record(a_).value();
  for (Event event : {first, third}) streams_.Release(event);
  device_.FailAt(1, /*for_ever=*/true);  // any call: both count
  EXPECT_FALSE(device_.Commit(At(32_MiB), 2_MiB).ok());
  EXPECT_FALSE(streams_.Record(a_).ok());
  device_.FailAt(0);
  EXPECT_EQ(device_.failures()->calls(DriverCall::kRecord), 4);
  EXPECT_EQ(streams_.counters().records, 2);
}

TEST_F(SimulatedStreamsTest, FindsWhoseWorkIsInTheWay) {
  streams_.Queue(a_, Nanos(100), {{At(0_MiB), 4_MiB}, {At(8_MiB), 1_B}});
  EXPECT_EQ(streams_.FindConflict(At(3_MiB), 10_MiB, b_), a_);
  EXPECT_EQ(streams_.FindConflict(At(8_MiB), 1_B, kDefaultStream), a_);
  EXPECT_EQ(streams_.FindConflict(At(4_MiB), 4_MiB, b_), std::nullopt);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 4_MiB, a_), std::nullopt);  // its own queue
  streams_.Advance(Nanos(100));
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 32_MiB, b_), std::nullopt);
}

TEST_F(SimulatedStreamsTest, WhatIsOrderedBeforeIsNotInTheWay) {
  const StreamId c = streams_.CreateStream();
  streams_.Queue(a_, Nanos(100), {{At(0_MiB), 2_MiB}});
  const Event a = streams_.Record(a_).value();
  streams_.Queue(a_, Nanos(100), {{At(2_MiB), 2_MiB}});
  streams_.StreamWaitEvent(b_, a);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, b_), std::nullopt);
  EXPECT_EQ(streams_.FindConflict(At(2_MiB), 2_MiB, b_), a_);  // queued after the event
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, c), a_);
  const Event b = streams_.Record(b_).value();  // and through a stream between
  streams_.StreamWaitEvent(c, b);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, c), std::nullopt);
  EXPECT_EQ(streams_.FindConflict(At(2_MiB), 2_MiB, c), a_);
  for (Event event : {a, b}) streams_.Release(event);
  streams_.DestroyStream(b_);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, c), std::nullopt);
}

TEST_F(SimulatedStreamsTest, WhatAnEventDoesNotKnowOfIsInTheWay) {
  streams_.Queue(b_, Nanos(100));
  const Event b = streams_.Record(b_).value();
  streams_.Queue(a_, Nanos(100), {{At(0_MiB), 2_MiB}});
  const Event a = streams_.Record(a_).value();
  streams_.StreamWaitEvent(b_, a);  // after b was recorded
  streams_.StreamWaitEvent(kDefaultStream, b);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, kDefaultStream), a_);
  EXPECT_EQ(streams_.FindConflict(At(0_MiB), 2_MiB, b_), std::nullopt);
  for (Event event : {a, b}) streams_.Release(event);
}

// The order in which works of three streams, four each, are done.
std::string CompletionOrder(uint64_t seed, bool by_time) {
  SimulatedDevice device({});
  SimulatedStreams streams(&device, {.seed = seed, .spread = by_time ? 3.0 : 1.0});
  std::vector<std::pair<char, Event>> events;
  for (char name : {'a', 'b', 'c'}) {
    const StreamId stream = streams.CreateStream();
    for (int i = 0; i < 4; ++i) {
      streams.Queue(stream, Nanos(1000));
      events.emplace_back(name, streams.Record(stream).value());
    }
  }
  std::string order;
  while (!events.empty()) {
    if (by_time) {
      streams.Advance(Nanos(1));
    } else {
      EXPECT_GT(streams.CompleteSome(), 0);
    }
    std::erase_if(events, [&](const auto& event) {
      if (!streams.IsDone(event.second)) return false;
      streams.Release(event.second);
      order += event.first;
      return true;
    });
  }
  EXPECT_EQ(streams.CompleteSome(), 0);
  if (!by_time) {
    EXPECT_EQ(device.now(), Nanos(0));
  }
  return order;
}

TEST(SimulatedStreamsSeedTest, TheSeedChoosesTheOrderAndRepeatsIt) {
  for (bool by_time : {false, true}) {
    std::set<std::string> orders;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const std::string order = CompletionOrder(seed, by_time);
      EXPECT_EQ(order, CompletionOrder(seed, by_time));
      EXPECT_EQ(order.size(), 12u);
      orders.insert(order);
    }
    EXPECT_GT(orders.size(), 10u);
  }
}

// Any program of queues, events and waits comes to its end, whatever the order.
TEST(SimulatedStreamsSeedTest, EveryProgramEnds) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedDevice device({});
    SimulatedStreams streams(&device, {.seed = seed, .spread = 2});
    std::mt19937_64 random(seed);
    std::vector<StreamId> live = {kDefaultStream};
    std::vector<Event> events;
    for (int step = 0; step < 300; ++step) {
      const size_t at = random() % live.size();
      const uint64_t action = random() % 16;
      if (action < 5) streams.Queue(live[at], Nanos(static_cast<int64_t>(random() % 100)));
      if (action >= 5 && action < 9) events.push_back(streams.Record(live[at]).value());
      if (action >= 9 && action < 12 && !events.empty()) {
        streams.StreamWaitEvent(live[at], events[random() % events.size()]);
      }
      if (action == 12 && live.size() < 6) live.push_back(streams.CreateStream());
      if (action == 13 && at != 0) {
        streams.DestroyStream(live[at]);
        live.erase(live.begin() + static_cast<int64_t>(at));
      }
      if (action == 14) streams.CompleteSome();
      if (action == 15 && !events.empty()) streams.Wait(events[random() % events.size()]);
    }
    streams.WaitForAll();
    EXPECT_EQ(streams.counters().pending, 0);
    for (Event event : events) {
      EXPECT_TRUE(streams.IsDone(event));
      streams.Release(event);
    }
  }
}

using SimulatedStreamsDeathTest = SimulatedStreamsTest;

TEST_F(SimulatedStreamsDeathTest, MemoryInUseMustNotBeTakenAway) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  streams_.Queue(a_, Nanos(100), {{At(5_MiB), 1_B}});
  const std::string text = "taken away while queued work of stream 1 touches it";
  EXPECT_DEATH((void)device_.Decommit(At(4_MiB), 2_MiB), text);
  EXPECT_DEATH((void)device_.Move(At(2_MiB), At(32_MiB), 4_MiB), text);
  EXPECT_DEATH((void)device_.Unreserve(range_, 64_MiB), text);
  // Even when the call is one that fails: the next one would not.
  EXPECT_DEATH(
      {
        device_.FailAt(1);
        (void)device_.Decommit(At(4_MiB), 2_MiB);
      },
      text);
  EXPECT_TRUE(device_.Decommit(At(2_MiB), 2_MiB).ok());
  EXPECT_TRUE(device_.Move(At(6_MiB), At(32_MiB), 2_MiB).ok());
  streams_.Advance(Nanos(100));
  EXPECT_TRUE(device_.Decommit(At(4_MiB), 2_MiB).ok());
}

TEST_F(SimulatedStreamsDeathTest, StopsWhoBreaksTheRules) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(streams_.Queue(a_, Nanos(1), {{At(31_MiB), 2_MiB}}), "no memory behind it");
  EXPECT_DEATH(streams_.Queue(a_, Nanos(1), {{At(1_MiB), 0_B}}), "no memory behind it");
  EXPECT_DEATH(streams_.Queue(99, Nanos(1)), "no stream 99");
  EXPECT_DEATH(streams_.DestroyStream(kDefaultStream), "cannot be destroyed");
  streams_.DestroyStream(b_);
  EXPECT_DEATH(streams_.DestroyStream(b_), "no stream 2");
  EXPECT_DEATH(streams_.Queue(b_, Nanos(1)), "no stream 2");
  const Event event = streams_.Record(a_).value();
  EXPECT_DEATH(streams_.StreamWaitEvent(b_, event), "no stream 2");
  streams_.Release(event);
  EXPECT_DEATH(streams_.Release(event), "was released");
  EXPECT_DEATH((void)streams_.IsDone(event), "was released");
  EXPECT_DEATH(streams_.Wait(12345), "never recorded");
  const Event again = streams_.Record(a_).value();  // the same slot under another name
  EXPECT_DEATH(streams_.Wait(event), "was released");
  streams_.Release(again);
  EXPECT_DEATH(
      {
        SimulatedStreams other(&device_);
        (void)other.Record(kDefaultStream);
      },
      "1 events were never released");
  EXPECT_DEATH(SimulatedStreams(&device_, {.spread = 0.5}), "times its time");
}

}  // namespace
}  // namespace ebbtide
