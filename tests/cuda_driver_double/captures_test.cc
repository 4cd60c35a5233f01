// SPDX-License-Identifier: Apache-2.0
// Captures: what is recorded, what is illegal, and what a graph does.

#include <thread>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class CapturesTest : public DoubleTest {
 protected:
  CapturesTest() {
    Start();
    stream_ = NewStream();
    memory_ = Mapped(kGranule);
  }

  void Begin(CaptureMode mode = CaptureMode::kGlobal) const {
    ASSERT_OK(cuStreamBeginCapture_v2(stream_, mode));
  }

  Result End() const {
    GraphHandle graph{};
    return cuStreamEndCapture(stream_, &graph);
  }

  static Result TryAllocate() {
    DevicePointer address = 0;
    return cuMemAlloc_v2(&address, 1);
  }

  StreamHandle stream_{};
  DevicePointer memory_ = 0;
};

TEST_F(CapturesTest, CapturedWorkIsDoneAtEachLaunchAndNotBefore) {
  Begin();
  CaptureStatus status = CaptureStatus::kNone;
  ASSERT_OK(cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, CaptureStatus::kActive);
  uint64_t id = 0;
  ASSERT_OK(cuStreamGetCaptureInfo_v2(stream_, &status, &id, nullptr, nullptr, nullptr));
  EXPECT_NE(id, 0u);
  uint64_t same = 0;
  ASSERT_OK(cuStreamGetCaptureInfo_v3(stream_, &status, &same, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(same, id);
  size_t count = 0;
  EXPECT_EQ(cuStreamGetCaptureInfo_v2(stream_, &status, &id, nullptr, nullptr, &count),
            Result::kNotSupported);
  ASSERT_OK(cuMemsetD8Async(memory_, 1, 4, stream_));
  ASSERT_OK(cuMemcpyDtoDAsync_v2(memory_ + 8, memory_, 4, stream_));
  GraphHandle graph{};
  ASSERT_OK(cuStreamEndCapture(stream_, &graph));
  ASSERT_OK(cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, CaptureStatus::kNone);
  EXPECT_EQ(Byte(memory_ + 8), 0);
  GraphExecHandle executable{};
  ASSERT_OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  ASSERT_OK(cuGraphDestroy(graph));
  for (int round = 0; round < 2; ++round) {
    Byte(memory_ + 8) = 0;
    ASSERT_OK(cuGraphLaunch(executable, stream_));
    ASSERT_OK(cuStreamSynchronize(stream_));
    EXPECT_EQ(Byte(memory_ + 8), 1);
  }
  ASSERT_OK(cuGraphExecDestroy(executable));
  EXPECT_EQ(cuGraphLaunch(executable, stream_), Result::kInvalidValue);
  EXPECT_EQ(cuGraphDestroy(graph), Result::kInvalidValue);
  EXPECT_EQ(Counts().graphs, 0);
}

TEST_F(CapturesTest, AllocatingIsIllegalAndSpoilsTheCapture) {
  Begin();
  EXPECT_EQ(TryAllocate(), Result::kCaptureUnsupported);
  EXPECT_EQ(cuMemsetD8Async(memory_, 1, 1, stream_), Result::kCaptureInvalidated);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  EXPECT_OK(TryAllocate());
}

TEST_F(CapturesTest, WhatIsIllegalDependsOnTheModes) {
  // Another thread's global capture forbids it to this one, a thread's own does not.
  Result seen = Result::kSuccess;
  const auto elsewhere = [&seen] {
    UseDevice(0);
    seen = TryAllocate();
  };
  Begin(CaptureMode::kGlobal);
  std::thread(elsewhere).join();
  EXPECT_EQ(seen, Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  Begin(CaptureMode::kThreadLocal);
  std::thread(elsewhere).join();
  EXPECT_OK(seen);
  EXPECT_EQ(TryAllocate(), Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  Begin(CaptureMode::kRelaxed);
  EXPECT_OK(TryAllocate());
  EXPECT_OK(End());
  // A thread may say for itself that it knows better.
  CaptureMode mode = CaptureMode::kRelaxed;
  ASSERT_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CaptureMode::kGlobal);
  Begin(CaptureMode::kGlobal);
  EXPECT_OK(TryAllocate());
  EXPECT_OK(End());
}

TEST_F(CapturesTest, WaitingForTheCaptureIsIllegal) {
  Begin();
  EXPECT_EQ(cuStreamSynchronize(stream_), Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  Begin();
  EXPECT_EQ(cuStreamQuery(stream_), Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  Begin();
  EXPECT_EQ(cuCtxSynchronize(), Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  const EventHandle event = NewEvent();
  Begin();
  EXPECT_EQ(cuEventQuery(event), Result::kCaptureUnsupported);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
}

TEST_F(CapturesTest, AnEventOfACaptureIsNotForTheHost) {
  const EventHandle event = NewEvent();
  Begin(CaptureMode::kRelaxed);
  ASSERT_OK(cuEventRecord(event, stream_));
  EXPECT_EQ(cuEventQuery(event), Result::kCapturedEvent);
  EXPECT_EQ(cuEventSynchronize(event), Result::kCapturedEvent);
  EXPECT_OK(End());
  ASSERT_OK(cuEventRecord(event, stream_));
  EXPECT_OK(cuEventQuery(event));
}

TEST_F(CapturesTest, OtherStreamsJoinByAnEventAndMustBeJoinedAgain) {
  const StreamHandle other = NewStream();
  const EventHandle fork = NewEvent();
  const EventHandle join = NewEvent();
  for (const bool joined : {true, false}) {
    Begin();
    ASSERT_OK(cuEventRecord(fork, stream_));
    ASSERT_OK(cuStreamWaitEvent(other, fork, 0));
    ASSERT_OK(cuMemsetD8Async(memory_, 1, 1, other));
    ASSERT_OK(cuEventRecord(join, other));
    if (joined) {
      ASSERT_OK(cuStreamWaitEvent(stream_, join, 0));
    }
    EXPECT_EQ(Byte(memory_), 0);
    EXPECT_EQ(End(), joined ? Result::kSuccess : Result::kCaptureUnjoined);
    CaptureStatus status = CaptureStatus::kActive;
    ASSERT_OK(cuStreamIsCapturing(other, &status));
    EXPECT_EQ(status, CaptureStatus::kNone);
  }
}

TEST_F(CapturesTest, ACaptureEndsWhereItBegan) {
  GraphHandle graph{};
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), Result::kIllegalState);
  Begin();
  EXPECT_EQ(cuStreamBeginCapture_v2(stream_, CaptureMode::kGlobal), Result::kIllegalState);
  const EventHandle event = NewEvent();
  const StreamHandle other = NewStream();
  ASSERT_OK(cuEventRecord(event, stream_));
  ASSERT_OK(cuStreamWaitEvent(other, event, 0));
  Result seen = Result::kSuccess;
  std::thread([&] { seen = End(); }).join();
  EXPECT_EQ(seen, Result::kCaptureWrongThread);
  EXPECT_EQ(cuStreamEndCapture(other, &graph), Result::kCaptureUnmatched);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
}

TEST_F(CapturesTest, WorkOutsideCannotBeMixedIn) {
  const EventHandle outside = NewEvent();
  const StreamHandle other = NewStream();
  ASSERT_OK(cuEventRecord(outside, other));
  Begin();
  EXPECT_EQ(cuStreamWaitEvent(stream_, outside, 0), Result::kCaptureIsolation);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
  EXPECT_EQ(cuStreamBeginCapture_v2(StreamHandle::kDefault, CaptureMode::kGlobal),
            Result::kCaptureUnsupported);
  // Two captures do not become one.
  Begin();
  ASSERT_OK(cuStreamBeginCapture_v2(other, CaptureMode::kGlobal));
  const EventHandle event = NewEvent();
  ASSERT_OK(cuEventRecord(event, stream_));
  EXPECT_EQ(cuStreamWaitEvent(other, event, 0), Result::kCaptureMerge);
  EXPECT_EQ(End(), Result::kCaptureInvalidated);
}

TEST_F(CapturesTest, TheLegacyStreamCannotWaitForABlockingStreamThatCaptures) {
  Begin();
  EXPECT_OK(cuMemsetD8Async(memory_, 1, 1, StreamHandle::kDefault));  // stream_ does not block
  EXPECT_OK(End());
  const StreamHandle blocking = NewStream(0);
  ASSERT_OK(cuStreamBeginCapture_v2(blocking, CaptureMode::kGlobal));
  EXPECT_EQ(cuMemsetD8Async(memory_, 1, 1, StreamHandle::kDefault), Result::kCaptureImplicit);
  GraphHandle graph{};
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), Result::kCaptureInvalidated);
}

TEST_F(CapturesTest, MappingMemoryIsLegal) {
  Begin();
  const DevicePointer more = Mapped(kGranule);
  EXPECT_OK(cuMemsetD8Async(more, 1, 1, stream_));
  EXPECT_OK(End());
}

}  // namespace
}  // namespace ebbtide::hollow
