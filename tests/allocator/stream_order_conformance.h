// SPDX-License-Identifier: Apache-2.0
//
// What every StreamOrder must do. To test a new one, derive from StreamWorld, which queues work for
// the tests, include this header and instantiate:
//
//     INSTANTIATE_TEST_SUITE_P(MyOrder, StreamOrderTest, testing::Values(MakeMyWorld));
//
// Each test makes its own world and owns it; the suite runs on one thread but for the test that
// says so.

#ifndef EBBTIDE_TESTS_ALLOCATOR_STREAM_ORDER_CONFORMANCE_H_
#define EBBTIDE_TESTS_ALLOCATOR_STREAM_ORDER_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "allocator/stream_order.h"
#include "gtest/gtest.h"

namespace ebbtide {

// A StreamOrder with something to order.
class StreamWorld {
 public:
  virtual ~StreamWorld() = default;
  virtual StreamOrder* order() = 0;

  // False where everything is done at once and there is only the default stream. Then Hold and
  // LetGo do nothing, and the two functions about streams are not called.
  virtual bool has_queues() const = 0;

  // A stream that does not wait for the default one.
  virtual StreamId CreateStream() = 0;
  virtual void DestroyStream(StreamId stream) = 0;

  // Queues work that is not done before LetGo.
  virtual void Hold(StreamId stream) = 0;

  // All that was held may run; it need not be done yet on return.
  virtual void LetGo() = 0;
};

using MakeWorld = std::function<std::unique_ptr<StreamWorld>()>;

class StreamOrderTest : public testing::TestWithParam<MakeWorld> {
 protected:
  using Event = StreamOrder::Event;

  StreamOrderTest() : world_(GetParam()()), order_(world_->order()) {}

  Event Record(StreamId stream) {
    absl::StatusOr<Event> event = order_->Record(stream);
    EXPECT_TRUE(event.ok()) << event.status().ToString();
    return event.value_or(Event{0});
  }

  std::unique_ptr<StreamWorld> world_;
  StreamOrder* const order_;
};

TEST_P(StreamOrderTest, WithNothingQueuedAnEventIsDone) {
  const Event event = Record(kDefaultStream);
  order_->Wait(event);
  EXPECT_TRUE(order_->IsDone(event));
  order_->WaitForAll();
  EXPECT_TRUE(order_->IsDone(event));
  order_->Release(event);
}

TEST_P(StreamOrderTest, WaitingMakesItDone) {
  world_->Hold(kDefaultStream);
  const Event event = Record(kDefaultStream);
  world_->LetGo();
  order_->Wait(event);
  EXPECT_TRUE(order_->IsDone(event));
  order_->Wait(event);  // again is harmless
  order_->Release(event);
}

TEST_P(StreamOrderTest, OneStreamIsDoneInOrder) {
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i) {
    world_->Hold(kDefaultStream);
    events.push_back(Record(kDefaultStream));
  }
  world_->LetGo();
  order_->Wait(events[5]);
  for (int i = 0; i <= 5; ++i) EXPECT_TRUE(order_->IsDone(events[i])) << i;
  for (Event event : events) order_->Release(event);
  order_->WaitForAll();
}

TEST_P(StreamOrderTest, AnEventIsOfTheMomentItWasRecorded) {
  const Event before = Record(kDefaultStream);
  order_->Wait(before);
  world_->Hold(kDefaultStream);
  EXPECT_TRUE(order_->IsDone(before));
  order_->Wait(before);  // for ever, if it meant what came later
  order_->Release(before);
  world_->LetGo();
  order_->WaitForAll();
}

TEST_P(StreamOrderTest, AStreamThatNeverWasIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(order_->Record(~StreamId{0} >> 1).status()));
}

TEST_P(StreamOrderTest, WhatIsQueuedIsNotDone) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  world_->Hold(kDefaultStream);
  const Event event = Record(kDefaultStream);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(order_->IsDone(event));
  world_->LetGo();
  order_->WaitForAll();
  EXPECT_TRUE(order_->IsDone(event));
  order_->Release(event);
}

TEST_P(StreamOrderTest, StreamsDoNotWaitForEachOther) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  const StreamId held = world_->CreateStream();
  const StreamId idle = world_->CreateStream();
  EXPECT_NE(held, idle);
  EXPECT_NE(held, kDefaultStream);
  EXPECT_NE(idle, kDefaultStream);
  world_->Hold(held);
  const Event late = Record(held);
  const Event early = Record(idle);
  order_->Wait(early);
  EXPECT_TRUE(order_->IsDone(early));
  EXPECT_FALSE(order_->IsDone(late));
  world_->LetGo();
  order_->Wait(late);
  for (Event event : {late, early}) order_->Release(event);
  for (StreamId stream : {held, idle}) world_->DestroyStream(stream);
}

TEST_P(StreamOrderTest, AReleasedEventComesBackNew) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  const StreamId held = world_->CreateStream();
  const StreamId idle = world_->CreateStream();
  world_->Hold(held);
  for (int i = 0; i < 100; ++i) {
    const Event undone = Record(held);
    EXPECT_FALSE(order_->IsDone(undone));
    order_->Release(undone);
    const Event done = Record(idle);
    order_->Wait(done);
    EXPECT_TRUE(order_->IsDone(done));
    order_->Release(done);
  }
  world_->LetGo();
  order_->WaitForAll();
  for (StreamId stream : {held, idle}) world_->DestroyStream(stream);
}

TEST_P(StreamOrderTest, WaitForAllMeansEveryStream) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  std::vector<StreamId> streams = {kDefaultStream, world_->CreateStream(), world_->CreateStream()};
  std::vector<Event> events;
  for (StreamId stream : streams) {
    world_->Hold(stream);
    events.push_back(Record(stream));
  }
  world_->LetGo();
  order_->WaitForAll();
  for (Event event : events) {
    EXPECT_TRUE(order_->IsDone(event));
    order_->Release(event);
  }
  for (size_t i = 1; i < streams.size(); ++i) world_->DestroyStream(streams[i]);
}

TEST_P(StreamOrderTest, ADestroyedStreamStillRunsButTakesNothingNew) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  const StreamId stream = world_->CreateStream();
  world_->Hold(stream);
  const Event first = Record(stream);
  const Event second = Record(stream);
  world_->DestroyStream(stream);
  EXPECT_TRUE(absl::IsNotFound(order_->Record(stream).status()));
  EXPECT_FALSE(order_->IsDone(first));
  world_->LetGo();
  order_->Wait(first);
  EXPECT_TRUE(order_->IsDone(first));
  order_->WaitForAll();
  EXPECT_TRUE(order_->IsDone(second));
  EXPECT_TRUE(absl::IsNotFound(order_->Record(stream).status()));
  for (Event event : {first, second}) order_->Release(event);
}

TEST_P(StreamOrderTest, AStreamsNumberIsNeverGivenAgain) {
  if (!world_->has_queues()) GTEST_SKIP() << "needs queues";
  std::set<StreamId> seen = {kDefaultStream};
  for (int i = 0; i < 20; ++i) {
    const StreamId stream = world_->CreateStream();
    EXPECT_TRUE(seen.insert(stream).second) << stream;
    world_->DestroyStream(stream);
    EXPECT_TRUE(absl::IsNotFound(order_->Record(stream).status()));
  }
}

TEST_P(StreamOrderTest, ThreadsRecordAndWaitAtOnce) {
  std::vector<StreamId> streams(4, kDefaultStream);
  if (world_->has_queues()) {
    for (StreamId& stream : streams) stream = world_->CreateStream();
  }
  for (StreamId stream : streams) world_->Hold(stream);
  world_->LetGo();
  std::vector<std::thread> threads;
  for (StreamId stream : streams) {
    threads.emplace_back([this, stream] {
      for (int i = 0; i < 200; ++i) {
        const Event first = Record(stream);
        const Event second = Record(stream);
        if (i % 3 == 0) order_->Release(first);
        order_->Wait(second);
        EXPECT_TRUE(order_->IsDone(second));
        order_->Release(second);
        if (i % 3 != 0) order_->Release(first);
        if (i % 50 == 0) order_->WaitForAll();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!world_->has_queues()) return;
  for (StreamId stream : streams) world_->DestroyStream(stream);
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_STREAM_ORDER_CONFORMANCE_H_
