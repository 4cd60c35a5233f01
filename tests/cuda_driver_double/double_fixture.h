// SPDX-License-Identifier: Apache-2.0
//
// The fixture of the double's own tests: a machine as in a new process for each test, with settings
// of the test's choice, and short forms of what every test does.
//
// Threads: one. Ownership: the machine is reset before each test, so that tests need not clean up;
// those that want to see that nothing is left ask for Counts().

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_DOUBLE_FIXTURE_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_DOUBLE_FIXTURE_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/cuda_driver_double/control.h"
#include "tests/cuda_driver_double/entry_points.h"

namespace ebbtide::hollow {

inline void PrintTo(Result result, std::ostream* out) {
  const char* name = ResultName(result);
  *out << (name == nullptr ? "?" : name) << " (" << static_cast<int>(result) << ")";
}

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGranule = 2 * kMiB;  // the double's default granularity

class DoubleTest : public testing::Test {
 protected:
  DoubleTest() {
    // Death tests start anew, because a fork cannot use the driver.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ebbtide_double_reset();
  }

  static void Set(const char* name, const char* value) {
    ASSERT_EQ(ebbtide_double_set(name, value), 0) << ebbtide_double_error();
  }

  // Initialises the driver and makes the primary context of `device` current.
  static void Start(int device = 0) {
    ASSERT_OK(cuInit(0));
    UseDevice(device);
  }

  static void UseDevice(int device) {
    ContextHandle context{};
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context, device));
    ASSERT_OK(cuCtxSetCurrent(context));
  }

  static AllocationProperties Properties(int device = 0, HandleType type = HandleType::kNone) {
    AllocationProperties properties;
    properties.type = AllocationType::kPinned;
    properties.location = {LocationType::kDevice, device};
    properties.requested_handle_types = type;
    return properties;
  }

  static MemoryHandle Create(size_t size, int device = 0, HandleType type = HandleType::kNone) {
    MemoryHandle handle = 0;
    const AllocationProperties properties = Properties(device, type);
    EXPECT_OK(cuMemCreate(&handle, size, &properties, 0));
    return handle;
  }

  static DevicePointer Reserve(size_t size) {
    DevicePointer start = 0;
    EXPECT_OK(cuMemAddressReserve(&start, size, 0, 0, 0));
    return start;
  }

  static Result Allow(DevicePointer start, size_t size, Access access = Access::kReadWrite,
                      int device = 0) {
    const AccessDescription description{{LocationType::kDevice, device}, access};
    return cuMemSetAccess(start, size, &description, 1);
  }

  // Memory at fresh addresses that device 0 may access; nothing but the mapping holds it.
  static DevicePointer Mapped(size_t size) {
    const MemoryHandle handle = Create(size);
    const DevicePointer start = Reserve(size);
    EXPECT_OK(cuMemMap(start, size, 0, handle, 0));
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_OK(Allow(start, size));
    return start;
  }

  static StreamHandle NewStream(unsigned flags = kStreamNonBlocking) {
    StreamHandle stream{};
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
  }

  static EventHandle NewEvent(unsigned flags = kEventDisableTiming) {
    EventHandle event{};
    EXPECT_OK(cuEventCreate(&event, flags));
    return event;
  }

  static EbbtideDoubleCounts Counts() {
    EbbtideDoubleCounts counts;
    ebbtide_double_count(&counts);
    return counts;
  }

  // The first hazard, or an empty text.
  static std::string Hazard() {
    const char* text = ebbtide_double_hazard(0);
    return text == nullptr ? "" : text;
  }

  // A byte as the processor sees it.
  static uint8_t& Byte(DevicePointer address) { return *reinterpret_cast<uint8_t*>(address); }

  // The same byte as the driver gives it.
  static int Read(DevicePointer address) {
    uint8_t byte = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&byte, address, 1));
    return byte;
  }

  static int Touch(StreamHandle stream, DevicePointer address, size_t size, bool writes) {
    return ebbtide_double_touch(reinterpret_cast<void*>(stream), address, size, writes ? 1 : 0);
  }
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_DOUBLE_FIXTURE_H_
