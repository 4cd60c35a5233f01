// SPDX-License-Identifier: Apache-2.0
// Primary contexts and each thread's stack of current ones.

#include <thread>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class ContextsTest : public DoubleTest {
 protected:
  ContextsTest() {
    Set("devices", "2");
    EXPECT_OK(cuInit(0));
  }

  static ContextHandle Retain(int device) {
    ContextHandle context{};
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, device));
    return context;
  }

  static ContextHandle Current() {
    ContextHandle context{};
    EXPECT_OK(cuCtxGetCurrent(&context));
    return context;
  }

  static Result TryAllocate() {
    DevicePointer address = 0;
    return cuMemAlloc_v2(&address, 1);
  }
};

TEST_F(ContextsTest, WithoutACurrentContextThereIsNoMemory) {
  EXPECT_EQ(Current(), ContextHandle{});
  EXPECT_EQ(TryAllocate(), Result::kInvalidContext);
  EXPECT_EQ(cuCtxSynchronize(), Result::kInvalidContext);
  StreamHandle stream{};
  EXPECT_EQ(cuStreamCreate(&stream, 0), Result::kInvalidContext);
  EXPECT_EQ(cuStreamSynchronize(StreamHandle::kDefault), Result::kInvalidContext);
  EXPECT_EQ(cuCtxPopCurrent_v2(nullptr), Result::kInvalidContext);
  ASSERT_OK(cuCtxSetCurrent(Retain(0)));
  EXPECT_OK(TryAllocate());
}

TEST_F(ContextsTest, TheStackIsEachThreadsOwn) {
  const ContextHandle first = Retain(0);
  const ContextHandle second = Retain(1);
  ASSERT_OK(cuCtxSetCurrent(first));
  ASSERT_OK(cuCtxPushCurrent_v2(second));
  EXPECT_EQ(Current(), second);
  DeviceOrdinal device = -1;
  ASSERT_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  std::thread([] { EXPECT_EQ(Current(), ContextHandle{}); }).join();
  ContextHandle popped{};
  ASSERT_OK(cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(popped, second);
  EXPECT_EQ(Current(), first);
  ASSERT_OK(cuCtxSetCurrent(ContextHandle{}));
  EXPECT_EQ(Current(), ContextHandle{});
  EXPECT_EQ(cuCtxSetCurrent(ContextHandle{12}), Result::kInvalidContext);
}

TEST_F(ContextsTest, AContextLivesWhileSomebodyHoldsIt) {
  unsigned flags = 0;
  int active = 1;
  ASSERT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), Result::kInvalidContext);
  ASSERT_OK(cuDevicePrimaryCtxSetFlags_v2(0, 4));
  const ContextHandle context = Retain(0);
  EXPECT_EQ(Retain(0), context);
  ASSERT_OK(cuCtxSetCurrent(context));
  ASSERT_OK(cuDevicePrimaryCtxRelease_v2(0));
  ASSERT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_EQ(flags, 4u);
  EXPECT_OK(TryAllocate());
  ASSERT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(TryAllocate(), Result::kContextIsDestroyed);
  EXPECT_EQ(cuCtxSetCurrent(context), Result::kContextIsDestroyed);
}

TEST_F(ContextsTest, AResetTakesTheContextsThingsAndLeavesMappings) {
  ASSERT_OK(cuCtxSetCurrent(Retain(0)));
  ASSERT_OK(TryAllocate());
  const StreamHandle stream = NewStream();
  const EventHandle event = NewEvent();
  const DevicePointer mapped = Mapped(kGranule);
  ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
  const EbbtideDoubleCounts left = Counts();
  EXPECT_EQ(left.allocations, 0);
  EXPECT_EQ(left.streams, 0);
  EXPECT_EQ(left.events, 0);
  EXPECT_EQ(left.mappings, 1);
  ASSERT_OK(cuCtxSetCurrent(Retain(0)));
  EXPECT_EQ(cuStreamSynchronize(stream), Result::kInvalidHandle);
  EXPECT_EQ(cuEventQuery(event), Result::kInvalidHandle);
  EXPECT_OK(cuMemUnmap(mapped, kGranule));
}

TEST_F(ContextsTest, SynchronizeIsForTheCurrentDeviceOnly) {
  Set("async", "1");
  UseDevice(1);
  const StreamHandle other = NewStream();
  ASSERT_EQ(Touch(other, Mapped(kGranule), 0, false), 0);
  UseDevice(0);
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(Counts().operations_pending, 1);
  EXPECT_EQ(cuStreamQuery(other), Result::kNotReady);
  UseDevice(1);
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_EQ(Counts().operations_pending, 0);
}

}  // namespace
}  // namespace ebbtide::hollow
