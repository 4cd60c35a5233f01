// SPDX-License-Identifier: Apache-2.0
// Streams and events: in what order work is done, and that a program which does not wait meets it
// undone.

#include <thread>
#include <vector>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class StreamsTest : public DoubleTest {
 protected:
  StreamsTest() { Start(); }

  // A granule whose bytes are all 0.
  static DevicePointer Memory() { return Mapped(kGranule); }
};

TEST_F(StreamsTest, WorkIsDoneAtOnceWithoutASeed) {
  const DevicePointer memory = Memory();
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 8, 1, stream));
  EXPECT_EQ(Byte(memory), 8);
  EXPECT_OK(cuStreamQuery(stream));
  EXPECT_EQ(Counts().operations_pending, 0);
}

TEST_F(StreamsTest, WorkIsLateWithASeed) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 8, 1, stream));
  EXPECT_EQ(Byte(memory), 0);
  EXPECT_EQ(cuStreamQuery(stream), Result::kNotReady);
  ASSERT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Byte(memory), 8);
  EXPECT_OK(cuStreamQuery(stream));
}

TEST_F(StreamsTest, AskingLongEnoughSeesTheEnd) {
  Set("async", "7");
  const DevicePointer memory = Memory();
  const StreamHandle stream = NewStream();
  const EventHandle event = NewEvent();
  for (int i = 0; i < 10; ++i) ASSERT_OK(cuMemsetD8Async(memory, i, 1, stream));
  ASSERT_OK(cuEventRecord(event, stream));
  int asked = 1;
  while (cuEventQuery(event) == Result::kNotReady) ++asked;
  EXPECT_GT(asked, 2);
  EXPECT_EQ(Byte(memory), 9);
}

// How many questions it takes is the seed's choice, and always the same.
TEST_F(StreamsTest, ASeedRepeatsItself) {
  std::vector<int> counts[2];
  for (std::vector<int>& asked : counts) {
    for (const char* seed : {"1", "2", "3", "4"}) {
      ebbtide_double_reset();
      Set("async", seed);
      Start();
      const StreamHandle stream = NewStream();
      const DevicePointer memory = Memory();
      for (int i = 0; i < 20; ++i) ASSERT_OK(cuMemsetD8Async(memory, i, 1, stream));
      asked.push_back(0);
      while (cuStreamQuery(stream) == Result::kNotReady) ++asked.back();
    }
  }
  EXPECT_EQ(counts[0], counts[1]);
  EXPECT_FALSE(counts[0][0] == counts[0][1] && counts[0][1] == counts[0][2] &&
               counts[0][2] == counts[0][3]);
}

TEST_F(StreamsTest, AStreamThatWaitsForAnEventComesAfterIt) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle first = NewStream();
  const StreamHandle second = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, first));
  ASSERT_OK(cuEventRecord(event, first));
  ASSERT_OK(cuStreamWaitEvent(second, event, 0));
  ASSERT_OK(cuMemcpyDtoDAsync_v2(memory + 2, memory, 1, second));
  ASSERT_OK(cuMemsetD8Async(memory + 1, 3, 1, first));
  ASSERT_OK(cuStreamSynchronize(second));
  EXPECT_EQ(Byte(memory + 2), 1);
  EXPECT_EQ(Byte(memory + 1), 0);  // behind the event, and nobody waited for it
  EXPECT_EQ(Hazard(), "");
}

TEST_F(StreamsTest, AWaitIsForTheRecordBeforeItNotForALaterOne) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle first = NewStream();
  const StreamHandle second = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_OK(cuStreamWaitEvent(second, event, 0));  // nothing is recorded: nothing to wait for
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, first));
  ASSERT_OK(cuEventRecord(event, first));
  ASSERT_OK(cuStreamSynchronize(second));
  EXPECT_EQ(Byte(memory), 0);
  ASSERT_OK(cuEventSynchronize(event));
  EXPECT_EQ(Byte(memory), 1);
}

TEST_F(StreamsTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle blocking = NewStream(0);
  const StreamHandle other = NewStream(kStreamNonBlocking);
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, blocking));
  ASSERT_OK(cuMemsetD8Async(memory + 1, 1, 1, other));
  ASSERT_OK(cuMemcpyDtoDAsync_v2(memory + 2, memory, 1, StreamHandle::kDefault));
  ASSERT_OK(cuMemcpyDtoDAsync_v2(memory + 3, memory + 2, 1, NewStream(0)));
  ASSERT_OK(cuMemsetD8Async(memory + 4, 1, 1, blocking));
  ASSERT_OK(cuStreamSynchronize(blocking));
  EXPECT_EQ(Byte(memory + 2), 1);
  EXPECT_EQ(Byte(memory + 3), 0);  // nobody waited for that stream
  EXPECT_EQ(Byte(memory + 4), 1);
  EXPECT_EQ(Byte(memory + 1), 0);
  EXPECT_EQ(Hazard(), "");
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(Byte(memory + 1), 1);
  EXPECT_EQ(Byte(memory + 3), 1);
}

TEST_F(StreamsTest, PageableMemoryIsReadAtOnceAndPinnedMemoryLate) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle stream = NewStream();
  uint8_t pageable = 1;
  void* pinned = nullptr;
  ASSERT_OK(cuMemHostAlloc(&pinned, 1, 0));
  auto& late = *static_cast<uint8_t*>(pinned);
  late = 1;
  ASSERT_OK(cuMemcpyHtoDAsync_v2(memory, &pageable, 1, stream));
  ASSERT_OK(cuMemcpyHtoDAsync_v2(memory + 1, pinned, 1, stream));
  pageable = 2;
  late = 2;
  ASSERT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Byte(memory), 1);
  EXPECT_EQ(Byte(memory + 1), 2);
  // The same towards the host: pageable memory is there at the return.
  ASSERT_OK(cuMemcpyDtoHAsync_v2(pinned, memory, 1, stream));
  EXPECT_EQ(late, 2);
  ASSERT_OK(cuMemcpyDtoHAsync_v2(&pageable, memory + 1, 1, stream));
  EXPECT_EQ(pageable, 2);
  EXPECT_EQ(late, 1);  // it stood before the other on the stream
}

TEST_F(StreamsTest, WorkOfADestroyedStreamIsStillDone) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 5, 1, stream));
  ASSERT_OK(cuStreamDestroy_v2(stream));
  EXPECT_EQ(Byte(memory), 0);
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(Byte(memory), 5);
  ASSERT_OK(cuMemUnmap(memory, kGranule));
  EXPECT_EQ(Hazard(), "");
}

TEST_F(StreamsTest, DestroyedStreamsAndEventsAreFoundOut) {
  const StreamHandle stream = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_OK(cuStreamDestroy_v2(stream));
  ASSERT_OK(cuEventDestroy_v2(event));
  EXPECT_EQ(cuStreamDestroy_v2(stream), Result::kInvalidHandle);
  EXPECT_EQ(cuStreamSynchronize(stream), Result::kInvalidHandle);
  EXPECT_EQ(cuMemsetD8Async(Memory(), 1, 1, stream), Result::kInvalidHandle);
  EXPECT_EQ(cuEventQuery(event), Result::kInvalidHandle);
  EXPECT_EQ(cuEventRecord(event, StreamHandle::kDefault), Result::kInvalidHandle);
  EXPECT_EQ(cuStreamWaitEvent(StreamHandle::kDefault, event, 0), Result::kInvalidHandle);
  EXPECT_NE(NewStream(), stream);
}

TEST_F(StreamsTest, HandlesComeAgainWhereThatIsAskedFor) {
  Set("reuse_handles", "1");
  const StreamHandle stream = NewStream();
  uint64_t id = 0;
  ASSERT_OK(cuStreamGetId(stream, &id));
  ASSERT_OK(cuStreamDestroy_v2(stream));
  ASSERT_EQ(NewStream(), stream);
  uint64_t other = 0;
  ASSERT_OK(cuStreamGetId(stream, &other));
  EXPECT_NE(id, other);
}

TEST_F(StreamsTest, StreamsSayWhatTheyAre) {
  StreamHandle stream{};
  ASSERT_OK(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, -100));
  int priority = 0;
  unsigned flags = 0;
  DeviceOrdinal device = 7;
  ContextHandle context{};
  ContextHandle current{};
  ASSERT_OK(cuStreamGetPriority(stream, &priority));
  ASSERT_OK(cuStreamGetFlags(stream, &flags));
  ASSERT_OK(cuStreamGetDevice(stream, &device));
  ASSERT_OK(cuStreamGetCtx(stream, &context));
  ASSERT_OK(cuCtxGetCurrent(&current));
  int least = 1;
  int greatest = 1;
  ASSERT_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(priority, greatest);  // out of range is brought into it
  EXPECT_EQ(flags, kStreamNonBlocking);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(context, current);
  EXPECT_EQ(cuStreamCreate(&stream, 2), Result::kInvalidValue);
}

TEST_F(StreamsTest, EachThreadHasADefaultStreamOfItsOwn) {
  uint64_t mine = 0;
  uint64_t legacy = 0;
  uint64_t theirs = 0;
  ASSERT_OK(cuStreamGetId(StreamHandle::kPerThread, &mine));
  ASSERT_OK(cuStreamGetId(StreamHandle::kDefault, &legacy));
  ContextHandle context{};
  ASSERT_OK(cuCtxGetCurrent(&context));
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_OK(cuStreamGetId(StreamHandle::kPerThread, &theirs));
  }).join();
  EXPECT_NE(mine, theirs);
  EXPECT_NE(mine, legacy);
}

TEST_F(StreamsTest, EventsTellTheTimeBetweenThem) {
  const StreamHandle stream = NewStream();
  EventHandle start = NewEvent(0);
  const EventHandle end = NewEvent(0);
  float milliseconds = -1;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), Result::kInvalidHandle);
  ASSERT_OK(cuEventRecord(start, stream));
  ASSERT_OK(cuEventRecord(end, stream));
  ASSERT_OK(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0);
  start = NewEvent(kEventDisableTiming);
  ASSERT_OK(cuEventRecord(start, stream));
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), Result::kInvalidHandle);
  Set("async", "1");
  ASSERT_OK(cuEventRecord(end, stream));
  start = NewEvent(0);
  ASSERT_OK(cuEventRecord(start, stream));
  EXPECT_EQ(cuEventElapsedTime_v2(&milliseconds, end, start), Result::kNotReady);
  EventHandle event{};
  EXPECT_EQ(cuEventCreate(&event, 8), Result::kInvalidValue);
  EXPECT_EQ(cuEventCreate(&event, kEventInterprocess), Result::kInvalidValue);
}

TEST_F(StreamsTest, LongChainsBetweenStreamsAreRun) {
  Set("async", "1");
  const DevicePointer memory = Memory();
  const StreamHandle streams[] = {NewStream(), NewStream()};
  const EventHandle event = NewEvent();
  for (int i = 0; i < 20000; ++i) {
    ASSERT_OK(cuMemsetD8Async(memory, i % 251, 1, streams[i % 2]));
    ASSERT_OK(cuEventRecord(event, streams[i % 2]));
    ASSERT_OK(cuStreamWaitEvent(streams[(i + 1) % 2], event, 0));
  }
  ASSERT_OK(cuEventSynchronize(event));
  EXPECT_EQ(Byte(memory), 19999 % 251);
  EXPECT_EQ(Hazard(), "");
}

}  // namespace
}  // namespace ebbtide::hollow
