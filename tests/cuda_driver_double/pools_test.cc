// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated and freed in the order of streams.

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class PoolsTest : public DoubleTest {
 protected:
  PoolsTest() {
    Set("capacity", "1MiB");
    Set("async", "1");
    Start();
    stream_ = NewStream();
  }

  DevicePointer Allocate(size_t size) const {
    DevicePointer address = 0;
    EXPECT_OK(cuMemAllocAsync(&address, size, stream_));
    return address;
  }

  StreamHandle stream_{};
};

TEST_F(PoolsTest, AFreeTakesEffectWhenItsStreamComesToIt) {
  const DevicePointer memory = Allocate(1000);
  ASSERT_OK(cuMemsetD8Async(memory, 3, 1000, stream_));
  ASSERT_OK(cuMemFreeAsync(memory, stream_));
  EXPECT_EQ(ebbtide_double_bytes_committed(0), 1024);
  EXPECT_EQ(cuMemFreeAsync(memory, stream_), Result::kInvalidValue);  // a second time
  ASSERT_OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(ebbtide_double_bytes_committed(0), 0);
  EXPECT_EQ(cuMemFreeAsync(memory, stream_), Result::kInvalidValue);
  EXPECT_EQ(Hazard(), "");
}

TEST_F(PoolsTest, AnAllocationWaitsForQueuedFreesBeforeItFails) {
  const DevicePointer memory = Allocate(kMiB);
  ASSERT_OK(cuMemFreeAsync(memory, stream_));
  const DevicePointer again = Allocate(kMiB);
  DevicePointer more = 0;
  EXPECT_EQ(cuMemAllocAsync(&more, 1, stream_), Result::kOutOfMemory);
  EXPECT_OK(cuMemFreeAsync(again, stream_));
}

TEST_F(PoolsTest, AnotherStreamMustBeOrderedBehindTheAllocationAndBeforeTheFree) {
  const StreamHandle other = NewStream();
  const EventHandle event = NewEvent();
  const DevicePointer memory = Allocate(1000);
  ASSERT_OK(cuEventRecord(event, stream_));
  ASSERT_OK(cuStreamWaitEvent(other, event, 0));
  ASSERT_EQ(Touch(other, memory, 1000, true), 0);
  EXPECT_EQ(Hazard(), "");
  ASSERT_OK(cuMemFreeAsync(memory, stream_));
  EXPECT_NE(Hazard().find("race: free on stream"), std::string::npos) << Hazard();
  ebbtide_double_clear_hazards();
  const DevicePointer next = Allocate(1000);
  ASSERT_EQ(Touch(other, next, 1000, true), 0);
  EXPECT_NE(Hazard().find("after allocation on stream"), std::string::npos) << Hazard();
}

TEST_F(PoolsTest, UseAfterTheFreeOnTheSameStreamBreaksTheDevice) {
  const DevicePointer memory = Allocate(1000);
  ASSERT_OK(cuMemFreeAsync(memory, stream_));
  ASSERT_OK(cuMemsetD8Async(memory, 1, 1, stream_));
  EXPECT_EQ(cuStreamSynchronize(stream_), Result::kIllegalAddress);
}

TEST_F(PoolsTest, TheDefaultPoolTellsWhatIsUsed) {
  PoolHandle pool{};
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  Allocate(1000);
  constexpr int kReleaseThreshold = 4;
  constexpr int kUsedCurrent = 7;
  uint64_t value = 0;
  ASSERT_OK(cuMemPoolGetAttribute(pool, kUsedCurrent, &value));
  EXPECT_EQ(value, 1024u);
  value = 77;
  ASSERT_OK(cuMemPoolSetAttribute(pool, kReleaseThreshold, &value));
  value = 0;
  ASSERT_OK(cuMemPoolGetAttribute(pool, kReleaseThreshold, &value));
  EXPECT_EQ(value, 77u);
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(cuMemPoolTrimTo(PoolHandle{1}, 0), Result::kInvalidValue);
}

}  // namespace
}  // namespace ebbtide::hollow
