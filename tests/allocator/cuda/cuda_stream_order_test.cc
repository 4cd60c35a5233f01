// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/cuda_stream_order.h"

#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/allocator/cuda/fake_driver.h"
#include "tests/allocator/stream_order_conformance.h"

namespace ebbtide {
namespace {

using testing::HasSubstr;

CuStream Special(uintptr_t number) { return reinterpret_cast<CuStream>(number); }

const CuStream kPerThread = Special(kCuStreamPerThread);

class WorldOverFake : public StreamWorld {
 public:
  StreamOrder* order() override { return order_.get(); }
  bool has_queues() const override { return true; }
  StreamId CreateStream() override {
    const CuStream stream = fake_.CreateStream(/*blocking=*/false);
    const StreamId id = *order_->Register(stream);
    handles_[id] = stream;
    return id;
  }
  void DestroyStream(StreamId stream) override { fake_.DestroyStream(handles_.at(stream)); }
  void Hold(StreamId stream) override { fake_.Queue(handles_.at(stream)); }
  void LetGo() override { fake_.FinishAllWork(); }

 private:
  FakeDriver fake_;
  CudaDriver driver_{FakeDriver::Functions()};
  std::unique_ptr<CudaStreamOrder> order_ = *CudaStreamOrder::Create(&driver_, 0);
  std::map<StreamId, CuStream> handles_ = {{kDefaultStream, nullptr}};
};

INSTANTIATE_TEST_SUITE_P(CudaStreams, StreamOrderTest,
                         testing::Values([] { return std::make_unique<WorldOverFake>(); }));

class CudaStreamOrderTest : public testing::Test {
 protected:
  // Records, and says whether that was done already.
  bool DoneAfterRecord(StreamId stream) {
    const absl::StatusOr<StreamOrder::Event> event = order_->Record(stream);
    EXPECT_TRUE(event.ok()) << event.status();
    if (!event.ok()) return false;
    const bool done = order_->IsDone(*event);
    order_->Release(*event);
    return done;
  }

  FakeDriver fake_;
  CudaDriver driver_{FakeDriver::Functions()};
  std::unique_ptr<CudaStreamOrder> order_ = *CudaStreamOrder::Create(&driver_, 0);
};

TEST_F(CudaStreamOrderTest, AnEventIsDoneWhenWhatWasQueuedBeforeItIs) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  EXPECT_TRUE(DoneAfterRecord(id));
  fake_.Queue(stream);
  const StreamOrder::Event event = *order_->Record(id);
  EXPECT_FALSE(order_->IsDone(event));
  fake_.FinishWork(stream);
  fake_.Queue(stream);  // queued later: no matter
  EXPECT_TRUE(order_->IsDone(event));
  order_->Release(event);
}

TEST_F(CudaStreamOrderTest, WaitsForAnEventAndForAll) {
  const CuStream stream = fake_.CreateStream();
  const CuStream other = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  fake_.Queue(stream);
  fake_.Queue(other);
  const StreamOrder::Event event = *order_->Record(id);
  const StreamOrder::Event later = *order_->Record(*order_->Register(other));
  order_->Wait(event);
  EXPECT_TRUE(order_->IsDone(event));
  EXPECT_FALSE(order_->IsDone(later));
  fake_.DestroyStream(other);
  order_->WaitForAll();
  EXPECT_TRUE(order_->IsDone(later));
  order_->Release(event);
  order_->Release(later);
}

TEST_F(CudaStreamOrderTest, EventsAreUsedAgain) {
  const StreamOrder::Event first = *order_->Record(kDefaultStream);
  const StreamOrder::Event second = *order_->Record(kDefaultStream);
  EXPECT_NE(first, second);
  order_->Release(first);
  EXPECT_EQ(*order_->Record(kDefaultStream), first);
  EXPECT_EQ(fake_.Calls("cuEventCreate"), 2);
  order_.reset();
  EXPECT_EQ(fake_.live_events(), 0);
  EXPECT_EQ(fake_.retained_contexts(), 0);
}

TEST_F(CudaStreamOrderTest, TheDefaultStreamIsNumberZero) {
  EXPECT_EQ(*order_->Register(nullptr), kDefaultStream);
  EXPECT_EQ(*order_->Register(Special(kCuStreamLegacy)), kDefaultStream);
  fake_.Queue(nullptr);
  EXPECT_FALSE(DoneAfterRecord(kDefaultStream));
  fake_.FinishWork(nullptr);
  EXPECT_TRUE(DoneAfterRecord(kDefaultStream));
}

TEST_F(CudaStreamOrderTest, AHandleGivenAgainIsAnotherStream) {
  const CuStream stream = fake_.CreateStream();
  const StreamId first = *order_->Register(stream);
  EXPECT_EQ(*order_->Register(stream), first);
  fake_.DestroyStream(stream);
  ASSERT_EQ(fake_.CreateStream(), stream);
  EXPECT_TRUE(absl::IsNotFound(order_->Record(first).status()));  // known by the driver's number
  const StreamId second = *order_->Register(stream);
  EXPECT_NE(second, first);
  EXPECT_TRUE(DoneAfterRecord(second));
  fake_.DestroyStream(stream);
  ASSERT_EQ(fake_.CreateStream(), stream);
  const StreamId third = *order_->Register(stream);
  fake_.ForgetCalls();
  EXPECT_TRUE(absl::IsNotFound(order_->Record(second).status()));  // known by Register
  EXPECT_EQ(fake_.Calls("cuStreamGetId"), 1) << "only the third, whether it is captured";
  EXPECT_TRUE(DoneAfterRecord(third));
}

TEST_F(CudaStreamOrderTest, ADestroyedStreamIsNotFound) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  fake_.DestroyStream(stream);
  const absl::Status status = order_->Record(id).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), absl::StrCat("stream ", id, " was destroyed"));
  EXPECT_TRUE(absl::IsNotFound(order_->Record(9999).status()));
}

TEST_F(CudaStreamOrderTest, AForgottenStreamIsNotAskedFor) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  order_->Forget(id);
  order_->Forget(id);
  order_->Forget(kDefaultStream);
  fake_.DestroyStream(stream);
  fake_.ForgetCalls();
  EXPECT_TRUE(absl::IsNotFound(order_->Record(id).status()));
  EXPECT_EQ(fake_.Calls("cuStreamGetId"), 0);
  EXPECT_TRUE(DoneAfterRecord(kDefaultStream));
}

TEST_F(CudaStreamOrderTest, EachThreadHasItsOwnDefaultStream) {
  const StreamId mine = *order_->Register(kPerThread);
  EXPECT_EQ(*order_->Register(kPerThread), mine);
  StreamId other = 0;
  std::thread([&] {
    other = *order_->Register(kPerThread);
    fake_.Queue(kPerThread);
    EXPECT_FALSE(DoneAfterRecord(other));
    fake_.FinishWork(kPerThread);
    EXPECT_TRUE(DoneAfterRecord(other));
  }).join();
  EXPECT_NE(mine, other);
  EXPECT_NE(mine, kDefaultStream);
  EXPECT_TRUE(DoneAfterRecord(mine));
}

TEST_F(CudaStreamOrderTest, AnotherThreadsDefaultStreamIsWaitedForUntilTheThreadEnds) {
  std::promise<StreamId> started;
  std::promise<void> finish, end;
  std::promise<void> finished;
  std::thread thread([&] {
    const StreamId id = *order_->Register(kPerThread);
    fake_.Queue(kPerThread);
    started.set_value(id);
    finish.get_future().wait();
    fake_.FinishWork(kPerThread);
    finished.set_value();
    end.get_future().wait();
  });
  const StreamId id = started.get_future().get();
  const StreamOrder::Event event = *order_->Record(id);
  EXPECT_FALSE(order_->IsDone(event));
  finish.set_value();
  finished.get_future().wait();
  EXPECT_TRUE(order_->IsDone(event));
  order_->Release(event);
  const std::thread::id name = thread.get_id();
  end.set_value();
  thread.join();
  fake_.DestroyStreamOfThread(name);
  EXPECT_TRUE(absl::IsNotFound(order_->Record(id).status()));
}

TEST_F(CudaStreamOrderTest, AnEndedThreadsStreamMayBecomeAnotherThreads) {
  StreamId first = 0;
  std::thread thread([&] { first = *order_->Register(kPerThread); });
  const std::thread::id name = thread.get_id();
  thread.join();
  fake_.GiveStreamOfThread(name, std::this_thread::get_id());
  EXPECT_TRUE(absl::IsNotFound(order_->Record(first).status()));
  EXPECT_EQ(*order_->Register(kPerThread), first);
  fake_.Queue(kPerThread);
  EXPECT_FALSE(DoneAfterRecord(first));
}

TEST_F(CudaStreamOrderTest, ACapturedStreamIsNotRecorded) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  fake_.BeginCapture(stream);
  for (StreamId each : {id, kDefaultStream}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(order_->Record(each).status()));
  }
  EXPECT_EQ(fake_.Calls("cuEventRecord"), 0);
  fake_.EndCapture(stream);
  EXPECT_TRUE(DoneAfterRecord(id));
  EXPECT_TRUE(DoneAfterRecord(kDefaultStream));
  EXPECT_FALSE(fake_.capture_broken());
}

TEST_F(CudaStreamOrderTest, OtherStreamsGoOnDuringACapture) {
  const CuStream captured = fake_.CreateStream(/*blocking=*/false);
  const CuStream stream = fake_.CreateStream();
  const CuStream destroyed = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  const StreamId gone = *order_->Register(destroyed);
  ASSERT_TRUE(order_->Register(captured).ok());
  fake_.DestroyStream(destroyed);
  fake_.BeginCapture(captured);
  fake_.Queue(stream);
  const StreamOrder::Event event = *order_->Record(id);
  EXPECT_FALSE(order_->IsDone(event));
  order_->WaitForAll();
  EXPECT_TRUE(order_->IsDone(event));
  fake_.Queue(stream);
  const StreamOrder::Event second = *order_->Record(id);
  order_->Wait(second);
  EXPECT_TRUE(order_->IsDone(second));
  // NotFound would send the caller to WaitForAll, which cannot do it now.
  EXPECT_TRUE(absl::IsFailedPrecondition(order_->Record(gone).status()));
  fake_.EndCapture(captured);
  EXPECT_TRUE(absl::IsNotFound(order_->Record(gone).status()));
  EXPECT_FALSE(fake_.capture_broken());
}

TEST_F(CudaStreamOrderTest, EventsOfADeviceThatFailedAreDone) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  fake_.Queue(stream);
  const StreamOrder::Event event = *order_->Record(id);
  EXPECT_FALSE(order_->IsDone(event));
  for (const char* call : {"", "cuEventQuery"}) {
    fake_.FailAt(1, kCuErrorIllegalAddress, true, call);
    EXPECT_TRUE(order_->IsDone(event));
    fake_.FailNever();
  }
  EXPECT_FALSE(order_->IsDone(event));
  fake_.FailForGood(kCuErrorIllegalAddress);
  order_->Wait(event);
  order_->WaitForAll();
  const absl::Status status = order_->Record(id).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(order_->Register(stream).status().code(), absl::StatusCode::kInternal);
  fake_.FailNever();
  EXPECT_TRUE(order_->Record(id).ok());
}

TEST_F(CudaStreamOrderTest, EachFailingCallIsReportedAndLosesNoEvent) {
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  int64_t n = 1;
  for (bool failed = true; failed; ++n) {
    fake_.FailAt(n, kCuErrorIllegalAddress);
    const auto registered = order_->Register(stream);
    const auto event = order_->Record(id);
    failed = fake_.failed();
    fake_.FailNever();
    EXPECT_EQ(registered.ok() && event.ok(), !failed) << "driver call " << n;
    if (event.ok()) order_->Release(*event);
    EXPECT_TRUE(FakeDriver::ContextStack().empty());
  }
  EXPECT_GE(n, 7);
  EXPECT_EQ(fake_.live_events(), 1);
  EXPECT_TRUE(DoneAfterRecord(id));
}

TEST_F(CudaStreamOrderTest, TheCallersContextAndCaptureModeStayAsTheyWere) {
  auto& stack = FakeDriver::ContextStack();
  stack = {fake_.PrimaryContext(1)};
  FakeDriver::CaptureMode() = 1;
  const CuStream stream = fake_.CreateStream();
  const StreamId id = *order_->Register(stream);
  const StreamOrder::Event event = *order_->Record(id);
  order_->IsDone(event);
  order_->Wait(event);
  order_->WaitForAll();
  order_->Release(event);
  order_.reset();
  EXPECT_EQ(stack, std::vector<CuContext>{fake_.PrimaryContext(1)});
  EXPECT_EQ(FakeDriver::CaptureMode(), 1);
  stack.clear();
  FakeDriver::CaptureMode() = 0;
}

TEST_F(CudaStreamOrderTest, NeedsADriverThatTellsStreamsApart) {
  CudaFunctions functions = FakeDriver::Functions();
  functions.stream_get_id = nullptr;
  const CudaDriver old(functions);
  const absl::Status status = CudaStreamOrder::Create(&old, 0).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(status.message(), HasSubstr("lacks cuStreamGetId"));
  EXPECT_TRUE(absl::IsNotFound(CudaStreamOrder::Create(&driver_, 5).status()));
}

TEST_F(CudaStreamOrderTest, ManyThreadsRecordOnTheirOwnStreams) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      const CuStream stream = fake_.CreateStream();
      for (int i = 0; i < 200; ++i) {
        const StreamId id = *order_->Register(i % 2 == 0 ? stream : kPerThread);
        const StreamOrder::Event event = *order_->Record(id);
        EXPECT_TRUE(order_->IsDone(event));
        order_->Release(event);
      }
      order_->Forget(*order_->Register(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ebbtide
