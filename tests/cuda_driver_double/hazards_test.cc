// SPDX-License-Identifier: Apache-2.0
// Mistakes of order that the double finds: memory that goes away under queued work, and work on two
// streams that nothing orders. Each has a twin that does it right and is left alone.

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class HazardsTest : public DoubleTest {
 protected:
  HazardsTest() { Start(); }
};

using HazardsDeathTest = HazardsTest;

TEST_F(HazardsTest, UnmappingUnderQueuedWorkIsReportedAndBreaksTheDevice) {
  Set("async", "1");
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 1, kGranule, stream));
  ASSERT_OK(cuMemUnmap(memory, kGranule));
  EXPECT_NE(Hazard().find("used after unmap by work queued on stream"), std::string::npos)
      << Hazard();
  EXPECT_EQ(cuStreamSynchronize(stream), Result::kIllegalAddress);
  EXPECT_EQ(Counts().hazards, 2);
  EXPECT_EQ(Counts().devices_broken, 1);
}

// The work is done here before the memory goes, but the program could not know that.
TEST_F(HazardsTest, UnmappingWithoutWaitingIsReportedThoughTheWorkIsDone) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, stream));
  ASSERT_OK(cuMemUnmap(memory, kGranule));
  EXPECT_NE(Hazard().find("used after unmap"), std::string::npos);
  ebbtide_double_clear_hazards();
  EXPECT_EQ(Counts().hazards, 0);
}

TEST_F(HazardsTest, EveryWayOfWaitingBeforeUnmapIsEnough) {
  Set("async", "3");
  for (int way = 0; way < 5; ++way) {
    const DevicePointer memory = Mapped(kGranule);
    const StreamHandle stream = NewStream();
    const EventHandle event = NewEvent();
    ASSERT_OK(cuMemsetD8Async(memory, 1, 1, stream));
    ASSERT_OK(cuEventRecord(event, stream));
    Result waited = Result::kSuccess;
    if (way == 0) waited = cuStreamSynchronize(stream);
    if (way == 1) waited = cuEventSynchronize(event);
    if (way == 2) waited = cuCtxSynchronize();
    ASSERT_OK(waited);
    while (way == 3 && cuEventQuery(event) != Result::kSuccess) continue;
    while (way == 4 && cuStreamQuery(stream) != Result::kSuccess) continue;
    ASSERT_OK(cuMemUnmap(memory, kGranule));
    EXPECT_EQ(Hazard(), "") << way;
  }
}

TEST_F(HazardsTest, WaitingForAnEarlierEventIsNotEnough) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle stream = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_OK(cuEventRecord(event, stream));
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, stream));
  ASSERT_OK(cuEventSynchronize(event));
  ASSERT_OK(cuMemUnmap(memory, kGranule));
  EXPECT_NE(Hazard(), "");
}

TEST_F(HazardsDeathTest, AHazardAbortsWhenStrict) {
  Set("strict", "1");
  const DevicePointer memory = Mapped(kGranule);
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, NewStream()));
  EXPECT_DEATH((void)cuMemUnmap(memory, kGranule), "used after unmap by work queued on stream");
}

TEST_F(HazardsTest, MemoryReusedOnAnotherStreamWithoutOrderIsARace) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle first = NewStream();
  const StreamHandle second = NewStream();
  ASSERT_EQ(Touch(first, memory, 100, false), 0);
  ASSERT_EQ(Touch(second, memory + 100, 100, true), 0);  // beside it
  EXPECT_EQ(Hazard(), "");
  ASSERT_EQ(Touch(second, memory + 99, 1, false), 0);  // two readers
  EXPECT_EQ(Hazard(), "");
  ASSERT_EQ(Touch(second, memory + 99, 1, true), 0);
  EXPECT_NE(Hazard().find("race: kernel on stream"), std::string::npos) << Hazard();
}

TEST_F(HazardsTest, AnEventOrAWaitingHostOrdersStreams) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle first = NewStream();
  const StreamHandle second = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_EQ(Touch(first, memory, 100, true), 0);
  ASSERT_OK(cuEventRecord(event, first));
  ASSERT_OK(cuStreamWaitEvent(second, event, 0));
  ASSERT_EQ(Touch(second, memory, 100, true), 0);
  ASSERT_OK(cuStreamSynchronize(second));
  ASSERT_EQ(Touch(first, memory, 100, true), 0);
  EXPECT_EQ(Hazard(), "");
}

TEST_F(HazardsTest, OrderIsNotInheritedBackwards) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle first = NewStream();
  const StreamHandle second = NewStream();
  const EventHandle event = NewEvent();
  ASSERT_OK(cuEventRecord(event, first));
  ASSERT_EQ(Touch(first, memory, 100, true), 0);  // behind the event
  ASSERT_OK(cuStreamWaitEvent(second, event, 0));
  ASSERT_EQ(Touch(second, memory, 100, false), 0);
  EXPECT_NE(Hazard(), "");
}

TEST_F(HazardsTest, NewMemoryAtOldAddressesHasNoHistory) {
  const DevicePointer memory = Mapped(kGranule);
  const StreamHandle stream = NewStream();
  ASSERT_EQ(Touch(stream, memory, 100, true), 0);
  ASSERT_OK(cuStreamSynchronize(stream));
  ASSERT_OK(cuMemUnmap(memory, kGranule));
  ASSERT_OK(cuMemMap(memory, kGranule, 0, Create(kGranule), 0));
  ASSERT_OK(Allow(memory, kGranule));
  ASSERT_EQ(Touch(NewStream(), memory, 100, true), 0);
  EXPECT_EQ(Hazard(), "");
}

TEST_F(HazardsTest, FreeWaitsAsDriversDoOrDoesNot) {
  Set("async", "1");
  DevicePointer memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, 100));
  const StreamHandle stream = NewStream();
  ASSERT_OK(cuMemsetD8Async(memory, 1, 100, stream));
  ASSERT_OK(cuMemFree_v2(memory));
  EXPECT_EQ(Counts().operations_pending, 0);
  EXPECT_EQ(Hazard(), "");
  Set("free_waits", "0");
  ASSERT_OK(cuMemAlloc_v2(&memory, 100));
  ASSERT_OK(cuMemsetD8Async(memory, 1, 100, stream));
  ASSERT_OK(cuMemFree_v2(memory));
  EXPECT_NE(Hazard().find("used after free"), std::string::npos) << Hazard();
}

TEST_F(HazardsTest, ADestroyedStreamsWorkMustBeWaitedForToo) {
  const DevicePointer memory = Mapped(2 * kGranule);
  const StreamHandle stream = NewStream();
  ASSERT_EQ(Touch(stream, memory, 100, true), 0);
  ASSERT_OK(cuStreamDestroy_v2(stream));
  ASSERT_OK(cuMemUnmap(memory, 2 * kGranule));
  EXPECT_NE(Hazard(), "");
}

TEST_F(HazardsTest, TheLegacyStreamComesAfterBlockingStreamsThatAreNoMore) {
  const DevicePointer memory = Mapped(kGranule);
  for (const unsigned flags : {0u, kStreamNonBlocking}) {
    const StreamHandle stream = NewStream(flags);
    ASSERT_EQ(Touch(stream, memory, 100, true), 0);
    ASSERT_OK(cuStreamDestroy_v2(stream));
    ASSERT_EQ(Touch(StreamHandle::kDefault, memory, 100, true), 0);
    EXPECT_EQ(Hazard() == "", flags == 0) << Hazard();
    ASSERT_OK(cuCtxSynchronize());
  }
}

TEST_F(HazardsTest, ADeviceThatFailedRunsNothingAnyMore) {
  Set("async", "1");
  const DevicePointer memory = Mapped(kGranule);
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, NewStream()));
  ASSERT_EQ(ebbtide_double_break(0, 719), 0);
  ebbtide_double_run_all();
  EXPECT_EQ(Byte(memory), 0);
  EXPECT_EQ(Counts().operations_pending, 0);
}

}  // namespace
}  // namespace ebbtide::hollow
