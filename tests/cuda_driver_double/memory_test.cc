// SPDX-License-Identifier: Apache-2.0
// Memory that comes with its addresses, pinned memory, copies and fills, and what is known of an
// address.

#include <cstring>
#include <vector>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class MemoryTest : public DoubleTest {
 protected:
  MemoryTest() {
    Set("devices", "2");
    Start();
  }

  static DevicePointer Allocate(size_t size) {
    DevicePointer address = 0;
    EXPECT_OK(cuMemAlloc_v2(&address, size));
    return address;
  }
};

using MemoryDeathTest = MemoryTest;

TEST_F(MemoryTest, OnlyWhatWasAllocatedIsFreedAndOnlyOnce) {
  DevicePointer address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 1), Result::kInvalidValue);
  address = Allocate(1000);
  EXPECT_EQ(cuMemFree_v2(address + 512), Result::kInvalidValue);  // an interior address
  EXPECT_OK(cuMemFree_v2(address));
  EXPECT_EQ(cuMemFree_v2(address), Result::kInvalidValue);
  EXPECT_OK(cuMemFree_v2(0));
  const DevicePointer mapped = Mapped(kGranule);
  EXPECT_EQ(cuMemFree_v2(mapped), Result::kInvalidValue);
  EXPECT_EQ(cuMemUnmap(Allocate(kGranule), kGranule), Result::kInvalidValue);
}

TEST_F(MemoryTest, AllocationsAreChargedInUnitsUpToTheCapacity) {
  Set("capacity", "1MiB");
  const DevicePointer address = Allocate(1);
  EXPECT_EQ(ebbtide_double_bytes_committed(0), 512);
  DevicePointer more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&more, kMiB), Result::kOutOfMemory);
  EXPECT_EQ(cuMemAlloc_v2(&more, SIZE_MAX - 5), Result::kOutOfMemory);
  ASSERT_OK(cuMemFree_v2(address));
  EXPECT_OK(cuMemAlloc_v2(&more, kMiB));
}

TEST_F(MemoryDeathTest, TouchingFreedMemoryOrThePageBehindItIsAFault) {
  const DevicePointer address = Allocate(4096);
  Byte(address + 4095) = 1;
  EXPECT_DEATH(Byte(address + 4096) = 1, "");
  ASSERT_OK(cuMemFree_v2(address));
  EXPECT_DEATH(Byte(address) = 1, "");
}

TEST_F(MemoryTest, CopiesAndFillsReachAcrossPieces) {
  const DevicePointer range = Reserve(2 * kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, Create(kGranule), 0));
  ASSERT_OK(cuMemMap(range + kGranule, kGranule, 0, Create(kGranule), 0));
  ASSERT_OK(Allow(range, 2 * kGranule));
  const DevicePointer middle = range + kGranule - 8;
  ASSERT_OK(cuMemsetD32_v2(middle, 0x01020304, 4));
  ASSERT_OK(cuMemsetD16_v2(middle + 16, 0x0605, 1));
  ASSERT_OK(cuMemsetD8_v2(middle + 18, 7, 1));
  const uint8_t wanted[] = {4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1, 5, 6, 7};
  uint8_t found[sizeof(wanted)];
  ASSERT_OK(cuMemcpyDtoH_v2(found, middle, sizeof(found)));
  EXPECT_EQ(std::memcmp(found, wanted, sizeof(wanted)), 0);
  const DevicePointer other = Allocate(sizeof(wanted));
  ASSERT_OK(cuMemcpyDtoD_v2(other, middle, sizeof(wanted)));
  ASSERT_OK(cuMemcpy(range, other, sizeof(wanted)));
  EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(range), wanted, sizeof(wanted)), 0);
}

TEST_F(MemoryTest, CopiesWantKnownWholeRanges) {
  const DevicePointer address = Allocate(100);
  uint8_t host[200] = {};
  EXPECT_EQ(cuMemcpyHtoD_v2(address, host, 101), Result::kInvalidValue);
  EXPECT_EQ(cuMemcpyDtoH_v2(host, address + 1, 100), Result::kInvalidValue);
  EXPECT_EQ(cuMemcpyDtoD_v2(address, reinterpret_cast<DevicePointer>(host), 8),
            Result::kInvalidValue);
  EXPECT_EQ(cuMemsetD8_v2(address, 0, 101), Result::kInvalidValue);
  EXPECT_EQ(cuMemsetD32_v2(address + 2, 0, 1), Result::kInvalidValue);  // misaligned
  EXPECT_EQ(cuMemsetD8_v2(Reserve(kGranule), 0, 1), Result::kInvalidValue);
  EXPECT_OK(cuMemcpyHtoD_v2(address, host, 0));
}

TEST_F(MemoryTest, ACopyToMappedMemoryWithoutAccessBreaksTheDevice) {
  const DevicePointer range = Reserve(kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, Create(kGranule), 0));
  EXPECT_EQ(cuMemsetD8_v2(range, 1, 1), Result::kIllegalAddress);
  EXPECT_EQ(cuCtxSynchronize(), Result::kIllegalAddress);
  EXPECT_NE(Hazard().find("device 0 failed"), std::string::npos) << Hazard();
}

TEST_F(MemoryTest, CopiesBetweenDevicesWork) {
  const DevicePointer first = Allocate(64);
  ASSERT_OK(cuMemsetD8_v2(first, 11, 64));
  ContextHandle contexts[2];
  ASSERT_OK(cuCtxGetCurrent(&contexts[0]));
  UseDevice(1);
  ASSERT_OK(cuCtxGetCurrent(&contexts[1]));
  const DevicePointer second = Allocate(64);
  ASSERT_OK(cuMemcpyPeer(second, contexts[1], first, contexts[0], 64));
  EXPECT_EQ(Read(second + 63), 11);
  EXPECT_EQ(Hazard(), "");
  EXPECT_EQ(cuMemcpyPeer(second, ContextHandle{1}, first, contexts[0], 64),
            Result::kInvalidContext);
}

TEST_F(MemoryTest, APeersMemoryIsForThoseWhoWereLetIn) {
  const DevicePointer address = Allocate(64);
  ContextHandle owner{};
  ASSERT_OK(cuCtxGetCurrent(&owner));
  UseDevice(1);
  EXPECT_EQ(cuCtxDisablePeerAccess(owner), Result::kPeerAccessNotEnabled);
  ASSERT_OK(cuCtxEnablePeerAccess(owner, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(owner, 0), Result::kPeerAccessAlreadyEnabled);
  EXPECT_EQ(Touch(StreamHandle::kLegacy, address, 64, true), 0);
  ASSERT_OK(cuCtxDisablePeerAccess(owner));
  EXPECT_EQ(Touch(StreamHandle::kLegacy, address, 64, true),
            static_cast<int>(Result::kIllegalAddress));
}

TEST_F(MemoryTest, PinnedMemoryIsForTheHostAndAllDevices) {
  void* host = nullptr;
  ASSERT_OK(cuMemHostAlloc(&host, 100, 0));
  std::memset(host, 6, 100);
  DevicePointer same = 0;
  ASSERT_OK(cuMemHostGetDevicePointer_v2(&same, host, 0));
  EXPECT_EQ(same, reinterpret_cast<DevicePointer>(host));
  const DevicePointer device = Allocate(100);
  ASSERT_OK(cuMemcpyHtoD_v2(device, host, 100));
  EXPECT_EQ(Read(device + 99), 6);
  EXPECT_EQ(Counts().host_allocations, 1);
  EXPECT_EQ(Counts().bytes_committed, 512);  // the host's costs the device nothing
  EXPECT_EQ(cuMemFree_v2(same), Result::kInvalidValue);
  EXPECT_EQ(cuMemFreeHost(static_cast<char*>(host) + 1), Result::kInvalidValue);
  EXPECT_OK(cuMemFreeHost(host));
  EXPECT_EQ(cuMemFreeHost(host), Result::kInvalidValue);
  EXPECT_EQ(cuMemHostAlloc(&host, 100, 8), Result::kInvalidValue);
}

TEST_F(MemoryTest, HostMemoryIsRegisteredOnce) {
  std::vector<char> bytes(10000);
  EXPECT_OK(cuMemHostRegister_v2(bytes.data(), 5000, 0));
  EXPECT_EQ(cuMemHostRegister_v2(bytes.data() + 4000, 5000, 0),
            Result::kHostMemoryAlreadyRegistered);
  EXPECT_OK(cuMemHostRegister_v2(bytes.data() + 5000, 5000, 0));
  EXPECT_EQ(Counts().host_registrations, 2);
  EXPECT_EQ(cuMemHostUnregister(bytes.data() + 1), Result::kHostMemoryNotRegistered);
  EXPECT_OK(cuMemHostUnregister(bytes.data()));
  EXPECT_EQ(cuMemHostUnregister(bytes.data()), Result::kHostMemoryNotRegistered);
}

TEST_F(MemoryTest, AnAddressTellsWhatLiesThere) {
  constexpr int kMemoryType = 2;
  constexpr int kDeviceOrdinal = 9;
  constexpr int kIpcCapable = 10;
  constexpr int kRangeStart = 11;
  constexpr int kRangeSize = 12;
  const DevicePointer allocated = Allocate(100);
  const DevicePointer mapped = Mapped(kGranule);
  int value = 0;
  ASSERT_OK(cuPointerGetAttribute(&value, kMemoryType, allocated + 1));
  EXPECT_EQ(value, 2);
  ASSERT_OK(cuPointerGetAttribute(&value, kIpcCapable, allocated));
  EXPECT_EQ(value, 1);
  ASSERT_OK(cuPointerGetAttribute(&value, kIpcCapable, mapped));
  EXPECT_EQ(value, 0);
  uint64_t wide = 0;
  ASSERT_OK(cuPointerGetAttribute(&wide, kRangeStart, allocated + 99));
  EXPECT_EQ(wide, allocated);
  ASSERT_OK(cuPointerGetAttribute(&wide, kRangeSize, allocated + 99));
  EXPECT_EQ(wide, 100u);
  EXPECT_EQ(cuPointerGetAttribute(&value, kMemoryType, allocated + 100), Result::kInvalidValue);
  // Asked for several, an unknown address is no error.
  int attributes[] = {kMemoryType, kDeviceOrdinal};
  int type = 5;
  int device = 5;
  void* data[] = {&type, &device};
  EXPECT_OK(cuPointerGetAttributes(2, attributes, data, allocated + 100));
  EXPECT_EQ(type, 0);
  EXPECT_EQ(device, 0);
  std::vector<char> host(100);
  ASSERT_OK(cuMemHostRegister_v2(host.data(), host.size(), 0));
  const auto address = reinterpret_cast<DevicePointer>(host.data());
  ASSERT_OK(cuPointerGetAttribute(&value, kMemoryType, address + 5));
  EXPECT_EQ(value, 1);
  ASSERT_OK(cuMemHostUnregister(host.data()));
}

TEST_F(MemoryTest, TheRangeOfAnAddressIsFound) {
  const DevicePointer address = Allocate(100);
  DevicePointer base = 0;
  size_t size = 0;
  ASSERT_OK(cuMemGetAddressRange_v2(&base, &size, address + 7));
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 100u);
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &size, address + 100), Result::kNotFound);
}

}  // namespace
}  // namespace ebbtide::hollow
