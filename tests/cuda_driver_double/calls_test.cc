// SPDX-License-Identifier: Apache-2.0
// Settings, counts of calls, calls that are told to fail, devices that fail for good, and what a
// call needs at all.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class CallsTest : public DoubleTest {
 protected:
  static Result TryCreate() {
    MemoryHandle handle = 0;
    const AllocationProperties properties = Properties();
    return cuMemCreate(&handle, kGranule, &properties, 0);
  }
};

TEST_F(CallsTest, TheNthCallFailsOnce) {
  Set("fail", "cuMemCreate:3");
  Start();
  EXPECT_OK(TryCreate());
  EXPECT_OK(TryCreate());
  EXPECT_EQ(TryCreate(), Result::kOutOfMemory);
  EXPECT_OK(TryCreate());
  EXPECT_EQ(Counts().handles, 3);
  EXPECT_EQ(ebbtide_double_calls("cuMemCreate"), 4);
}

TEST_F(CallsTest, AllCallsFromTheNthOnFailWithTheCodeThatWasAskedFor) {
  Start();
  Set("fail", "cuMemCreate:2+=304, cuMemAlloc:1");
  EXPECT_OK(TryCreate());
  EXPECT_EQ(TryCreate(), Result::kOperatingSystem);
  EXPECT_EQ(TryCreate(), Result::kOperatingSystem);
  DevicePointer address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 1), Result::kOutOfMemory);
  EXPECT_OK(cuMemAlloc_v2(&address, 1));
  Set("fail", "");
  EXPECT_OK(TryCreate());
}

TEST_F(CallsTest, AStarMeansAnyCall) {
  Start();
  Set("fail", "*:2=999");
  EXPECT_OK(TryCreate());
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), Result::kUnknown);
  EXPECT_OK(cuDeviceGetCount(&count));
}

TEST_F(CallsTest, CallsAreCountedByName) {
  Start();
  ebbtide_double_reset_calls();
  DevicePointer address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 0), Result::kInvalidValue);
  EXPECT_OK(TryCreate());
  EXPECT_EQ(ebbtide_double_calls("cuMemAlloc"), 1);
  EXPECT_EQ(ebbtide_double_calls("cuMemAlloc_v2"), 1);
  EXPECT_EQ(ebbtide_double_calls("cuMemFree"), 0);
  EXPECT_EQ(ebbtide_double_calls("*"), 2);
}

TEST_F(CallsTest, ABrokenDeviceStaysBrokenAndTheOtherWorks) {
  Set("devices", "2");
  Start();
  Set("break", "cuMemCreate:2");
  EXPECT_OK(TryCreate());
  EXPECT_OK(TryCreate());  // the last that works
  EXPECT_EQ(TryCreate(), Result::kIllegalAddress);
  EXPECT_EQ(cuCtxSynchronize(), Result::kIllegalAddress);
  DevicePointer address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 1), Result::kIllegalAddress);
  EXPECT_EQ(Counts().devices_broken, 1);
  ContextHandle other{};
  ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_OK(cuCtxSetCurrent(other));
  EXPECT_OK(cuMemAlloc_v2(&address, 1));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(TryCreate(), Result::kIllegalAddress);  // it names device 0
  // A new context is a new start.
  ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_OK(TryCreate());
}

TEST_F(CallsTest, ATestCanBreakADeviceItself) {
  Start();
  EXPECT_EQ(ebbtide_double_break(0, 719), 0);
  EXPECT_EQ(cuCtxSynchronize(), Result::kLaunchFailed);
  EXPECT_EQ(ebbtide_double_break(1, 719), static_cast<int>(Result::kInvalidDevice));
  EXPECT_EQ(ebbtide_double_break(0, 0), static_cast<int>(Result::kInvalidValue));
}

TEST_F(CallsTest, CallsTakeAsLongAsTheyAreToldTo) {
  Start();
  Set("latency", "cuMemCreate:20000");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_OK(TryCreate());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST_F(CallsTest, BadSettingsAreRefusedWithAReason) {
  const struct {
    const char* name;
    const char* value;
  } kBad[] = {{"capacity", "much"},      {"capacity", "0"},      {"granularity", "3MiB"},
              {"devices", "17"},         {"async", "-1"},        {"strict", "yes"},
              {"fail", "cuMemCreate"},   {"fail", "x:0"},        {"fail", ":1"},
              {"fail", "x:1=3000"},      {"break", "x:1,"},      {"latency", "cuMemMap:-1"},
              {"driver_version", "a13"}, {"no_such_thing", "1"}, {"fail", "x:1=0"}};
  for (const auto& [name, value] : kBad) {
    EXPECT_EQ(ebbtide_double_set(name, value), -1) << name << "=" << value;
    EXPECT_NE(std::strstr(ebbtide_double_error(), name), nullptr) << ebbtide_double_error();
  }
}

TEST_F(CallsTest, TheEnvironmentSetsWhatTheProcessStartsWith) {
  setenv("EBBTIDE_DOUBLE_DEVICES", "3", 1);
  setenv("EBBTIDE_DOUBLE_FAIL", "cuMemCreate:1", 1);
  ebbtide_double_reset();
  Start(2);
  EXPECT_EQ(TryCreate(), Result::kOutOfMemory);
  EXPECT_OK(TryCreate());
  setenv("EBBTIDE_DOUBLE_FAIL", "nonsense", 1);
  EXPECT_DEATH(ebbtide_double_reset(), "EBBTIDE_DOUBLE_fail=nonsense: expected NAME:N");
  unsetenv("EBBTIDE_DOUBLE_DEVICES");
  unsetenv("EBBTIDE_DOUBLE_FAIL");
}

TEST_F(CallsTest, WhatShapesTheMachineCannotChangeUnderIt) {
  Start();
  EXPECT_EQ(ebbtide_double_set("devices", "2"), -1);
  EXPECT_EQ(ebbtide_double_set("granularity", "4KiB"), -1);
  ebbtide_double_reset();
  EXPECT_EQ(ebbtide_double_set("devices", "2"), 0);
}

TEST_F(CallsTest, NothingWorksBeforeInit) {
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), Result::kNotInitialized);
  EXPECT_EQ(TryCreate(), Result::kNotInitialized);
  EXPECT_OK(cuDriverGetVersion(&count));
  EXPECT_EQ(count, 13000);
  EXPECT_EQ(cuInit(1), Result::kInvalidValue);
  Set("devices", "0");
  EXPECT_EQ(cuInit(0), Result::kNoDevice);
}

TEST_F(CallsTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  ASSERT_OK(cuGetErrorName(Result::kOutOfMemory, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_OK(cuGetErrorString(Result::kOutOfMemory, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(Result(12345), &text), Result::kInvalidValue);
  EXPECT_EQ(text, nullptr);
}

TEST_F(CallsTest, AForkOfAnInitialisedProcessCannotUseTheDriver) {
  Start();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int count = 0;
    _exit(cuDeviceGetCount(&count) == Result::kNotInitialized &&
                  cuInit(0) == Result::kNotInitialized
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_OK(TryCreate());
}

TEST_F(CallsTest, AForkBeforeInitCan) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(cuInit(0) == Result::kSuccess ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CallsTest, DevicesAnswerWhatAMemoryManagerAsks) {
  Set("devices", "2");
  Set("capacity", "3GiB");
  ASSERT_OK(cuInit(0));
  int count = 0;
  ASSERT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  DeviceOrdinal device = 9;
  ASSERT_OK(cuDeviceGet(&device, 1));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuDeviceGet(&device, 2), Result::kInvalidDevice);
  size_t bytes = 0;
  ASSERT_OK(cuDeviceTotalMem_v2(&bytes, 1));
  EXPECT_EQ(bytes, size_t{3} << 30);
  int value = 0;
  for (int wanted : {41, 102, 103, 110, 115}) {
    EXPECT_OK(cuDeviceGetAttribute(&value, wanted, 0));
    EXPECT_EQ(value, 1) << wanted;
  }
  EXPECT_EQ(cuDeviceGetAttribute(&value, 100000, 0), Result::kInvalidValue);
  char first[32];
  char second[32];
  ASSERT_OK(cuDeviceGetPCIBusId(first, sizeof(first), 0));
  ASSERT_OK(cuDeviceGetPCIBusId(second, sizeof(second), 1));
  EXPECT_STRNE(first, second);
  ASSERT_OK(cuDeviceGetName(first, sizeof(first), 0));
  EXPECT_STREQ(first, "Ebbtide Virtual GPU 0");
  ASSERT_OK(cuDeviceCanAccessPeer(&value, 0, 1));
  EXPECT_EQ(value, 1);
  ASSERT_OK(cuDeviceCanAccessPeer(&value, 1, 1));
  EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace ebbtide::hollow
