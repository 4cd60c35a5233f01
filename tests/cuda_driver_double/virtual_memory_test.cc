// SPDX-License-Identifier: Apache-2.0
// Addresses, pieces of memory, mappings and access: what works, and what every rule refuses.

#include <cstring>
#include <thread>
#include <vector>

#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

class VirtualMemoryTest : public DoubleTest {
 protected:
  VirtualMemoryTest() {
    Set("devices", "2");
    Start();
  }
};

using VirtualMemoryDeathTest = VirtualMemoryTest;

TEST_F(VirtualMemoryTest, TwoAddressesOfOnePieceShowTheSameBytes) {
  const MemoryHandle handle = Create(kGranule);
  const DevicePointer range = Reserve(4 * kGranule);
  const DevicePointer other = range + 2 * kGranule;
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  ASSERT_OK(cuMemMap(other, kGranule, 0, handle, 0));
  ASSERT_OK(Allow(range, kGranule));
  ASSERT_OK(Allow(other, kGranule));
  Byte(range + 5) = 77;
  EXPECT_EQ(Byte(other + 5), 77);
  ASSERT_OK(cuMemsetD8_v2(other, 3, kGranule));
  EXPECT_EQ(Byte(range + 5), 3);
}

TEST_F(VirtualMemoryTest, BytesStayWhenAPieceMovesToOtherAddresses) {
  const MemoryHandle handle = Create(kGranule);
  const DevicePointer range = Reserve(2 * kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  ASSERT_OK(Allow(range, kGranule));
  Byte(range + kGranule - 1) = 9;
  ASSERT_OK(cuMemUnmap(range, kGranule));
  ASSERT_OK(cuMemMap(range + kGranule, kGranule, 0, handle, 0));
  ASSERT_OK(Allow(range + kGranule, kGranule));
  EXPECT_EQ(Byte(range + 2 * kGranule - 1), 9);
}

TEST_F(VirtualMemoryDeathTest, TheProcessorFaultsWhereNothingIsMapped) {
  const DevicePointer range = Reserve(kGranule);
  EXPECT_DEATH(Byte(range) = 1, "");
}

TEST_F(VirtualMemoryDeathTest, TheProcessorFaultsBeforeAccessIsSet) {
  const DevicePointer range = Reserve(kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, Create(kGranule), 0));
  EXPECT_DEATH(Byte(range) = 1, "");
}

TEST_F(VirtualMemoryDeathTest, TheProcessorFaultsAfterUnmapAndAfterANewMapping) {
  const MemoryHandle handle = Create(kGranule);
  const DevicePointer range = Reserve(kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  ASSERT_OK(Allow(range, kGranule));
  Byte(range) = 1;
  ASSERT_OK(cuMemUnmap(range, kGranule));
  EXPECT_DEATH(Byte(range) = 1, "");
  // A new mapping at the same place has no access of the old one.
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  EXPECT_DEATH(Byte(range) = 1, "");
}

TEST_F(VirtualMemoryDeathTest, ReadOnlyAccessCanBeReadAndNotWritten) {
  const DevicePointer range = Mapped(kGranule);
  Byte(range) = 5;
  ASSERT_OK(Allow(range, kGranule, Access::kRead));
  EXPECT_EQ(Byte(range), 5);
  EXPECT_DEATH(Byte(range) = 1, "");
}

TEST_F(VirtualMemoryDeathTest, WithoutHostAccessOnlyTheDriverReachesTheMemory) {
  ebbtide_double_reset();
  Set("host_access", "0");
  Start();
  const DevicePointer range = Mapped(kGranule);
  ASSERT_OK(cuMemsetD8_v2(range, 4, kGranule));
  EXPECT_EQ(Read(range), 4);
  EXPECT_DEATH(Byte(range) = 1, "");
}

TEST_F(VirtualMemoryTest, ReservationsWantPagesAndPowersOfTwo) {
  DevicePointer start = 0;
  EXPECT_EQ(cuMemAddressReserve(&start, 0, 0, 0, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressReserve(&start, kGranule + 1, 0, 0, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressReserve(&start, kGranule, 3 * kMiB, 0, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressReserve(&start, kGranule, 0, 0, 1), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressReserve(nullptr, kGranule, 0, 0, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressReserve(&start, size_t{1} << 60, 0, 0, 0), Result::kOutOfMemory);
}

TEST_F(VirtualMemoryTest, ReservationsKeepTheirAlignmentAndFollowAFreeHint) {
  DevicePointer aligned = 0;
  ASSERT_OK(cuMemAddressReserve(&aligned, kGranule, size_t{1} << 30, 0, 0));
  EXPECT_EQ(aligned % (size_t{1} << 30), 0);
  ASSERT_OK(cuMemAddressFree(aligned, kGranule));
  DevicePointer hinted = 0;
  ASSERT_OK(cuMemAddressReserve(&hinted, kGranule, 0, aligned, 0));
  EXPECT_EQ(hinted, aligned);
  // What is taken cannot be had; the hint is only one.
  DevicePointer elsewhere = 0;
  ASSERT_OK(cuMemAddressReserve(&elsewhere, kGranule, 0, aligned, 0));
  EXPECT_NE(elsewhere, aligned);
  EXPECT_EQ(elsewhere % kGranule, 0);
}

TEST_F(VirtualMemoryTest, OnlyAWholeEmptyReservationIsFreed) {
  const DevicePointer range = Reserve(2 * kGranule);
  EXPECT_EQ(cuMemAddressFree(range, kGranule), Result::kInvalidValue);
  EXPECT_EQ(cuMemAddressFree(range + kGranule, kGranule), Result::kInvalidValue);
  ASSERT_OK(cuMemMap(range + kGranule, kGranule, 0, Create(kGranule), 0));
  EXPECT_EQ(cuMemAddressFree(range, 2 * kGranule), Result::kInvalidValue);
  ASSERT_OK(cuMemUnmap(range + kGranule, kGranule));
  EXPECT_OK(cuMemAddressFree(range, 2 * kGranule));
  EXPECT_EQ(cuMemAddressFree(range, 2 * kGranule), Result::kInvalidValue);
}

TEST_F(VirtualMemoryTest, PiecesWantGranulesOfADeviceThatIsThere) {
  MemoryHandle handle = 0;
  AllocationProperties properties = Properties();
  EXPECT_EQ(cuMemCreate(&handle, kMiB, &properties, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemCreate(&handle, 0, &properties, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 1), Result::kInvalidValue);
  EXPECT_EQ(cuMemCreate(&handle, kGranule, nullptr, 0), Result::kInvalidValue);
  properties.location.id = 2;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), Result::kInvalidDevice);
  properties.location = {LocationType::kHostNuma, 0};
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), Result::kNotSupported);
  properties = Properties(0, HandleType::kFabric);
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), Result::kNotSupported);
  properties = Properties();
  properties.type = AllocationType::kInvalid;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), Result::kInvalidValue);
  EXPECT_EQ(Counts().handles, 0);
}

TEST_F(VirtualMemoryTest, ThePropertiesOfAPieceComeBack) {
  AllocationProperties wanted = Properties(1, HandleType::kPosixDescriptor);
  wanted.gpu_direct_rdma_capable = 1;
  MemoryHandle handle = 0;
  ASSERT_OK(cuMemCreate(&handle, kGranule, &wanted, 0));
  AllocationProperties found;
  ASSERT_OK(cuMemGetAllocationPropertiesFromHandle(&found, handle));
  EXPECT_EQ(std::memcmp(&found, &wanted, sizeof(found)), 0);
}

TEST_F(VirtualMemoryTest, TheGranularityIsTheConfiguredOne) {
  ebbtide_double_reset();
  Set("granularity", "64KiB");
  Start();
  const AllocationProperties properties = Properties();
  size_t bytes = 0;
  ASSERT_OK(cuMemGetAllocationGranularity(&bytes, &properties, GranularityKind::kMinimum));
  EXPECT_EQ(bytes, 64u << 10);
  EXPECT_EQ(cuMemGetAllocationGranularity(&bytes, &properties, GranularityKind(2)),
            Result::kInvalidValue);
  const DevicePointer range = Mapped(64 << 10);
  EXPECT_OK(cuMemUnmap(range, 64 << 10));
}

TEST_F(VirtualMemoryTest, AMappingMustFitItsPieceAndAFreePlaceInOneReservation) {
  const MemoryHandle handle = Create(2 * kGranule);
  const DevicePointer range = Reserve(4 * kGranule);
  EXPECT_EQ(cuMemMap(range, 3 * kGranule, 0, handle, 0), Result::kInvalidValue);  // beyond it
  EXPECT_EQ(cuMemMap(range + kMiB, kGranule, 0, handle, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range, kMiB, 0, handle, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range, 0, 0, handle, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range, kGranule, kGranule, handle, 0), Result::kInvalidValue);  // an offset
  EXPECT_EQ(cuMemMap(range, kGranule, 0, handle, 1), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range, kGranule, 0, handle + 1, 0), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range + 3 * kGranule, 2 * kGranule, 0, handle, 0), Result::kInvalidValue);
  ASSERT_OK(cuMemMap(range + kGranule, 2 * kGranule, 0, handle, 0));
  EXPECT_EQ(cuMemMap(range, 2 * kGranule, 0, handle, 0), Result::kInvalidValue);  // over another
  EXPECT_EQ(cuMemMap(range + 2 * kGranule, 2 * kGranule, 0, handle, 0), Result::kInvalidValue);
  EXPECT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  EXPECT_EQ(Counts().mappings, 2);
}

TEST_F(VirtualMemoryTest, WholeMappingsAreUnmappedOneOrMoreAtATime) {
  const DevicePointer range = Reserve(4 * kGranule);
  ASSERT_OK(cuMemMap(range, 2 * kGranule, 0, Create(2 * kGranule), 0));
  ASSERT_OK(cuMemMap(range + 2 * kGranule, kGranule, 0, Create(kGranule), 0));
  EXPECT_EQ(cuMemUnmap(range, kGranule), Result::kInvalidValue);
  EXPECT_EQ(cuMemUnmap(range + kGranule, kGranule), Result::kInvalidValue);
  EXPECT_EQ(cuMemUnmap(range, 4 * kGranule), Result::kInvalidValue);  // the last is not mapped
  EXPECT_EQ(cuMemUnmap(range, 0), Result::kInvalidValue);
  EXPECT_EQ(Counts().mappings, 2);
  EXPECT_OK(cuMemUnmap(range, 3 * kGranule));
  EXPECT_EQ(cuMemUnmap(range, 2 * kGranule), Result::kInvalidValue);
  EXPECT_EQ(Counts().mappings, 0);
}

TEST_F(VirtualMemoryTest, AccessIsForWholeMappingsAndKnownDevices) {
  const DevicePointer range = Reserve(2 * kGranule);
  EXPECT_EQ(Allow(range, kGranule), Result::kInvalidValue);  // nothing is mapped
  ASSERT_OK(cuMemMap(range, 2 * kGranule, 0, Create(2 * kGranule), 0));
  EXPECT_EQ(Allow(range, kGranule), Result::kInvalidValue);
  EXPECT_EQ(Allow(range, 2 * kGranule, Access::kRead, 2), Result::kInvalidDevice);
  EXPECT_EQ(Allow(range, 2 * kGranule, Access(2)), Result::kInvalidValue);
  EXPECT_EQ(cuMemSetAccess(range, 2 * kGranule, nullptr, 0), Result::kInvalidValue);
  const AccessDescription host{{LocationType::kHost, 0}, Access::kReadWrite};
  EXPECT_EQ(cuMemSetAccess(range, 2 * kGranule, &host, 1), Result::kInvalidValue);
  EXPECT_OK(Allow(range, 2 * kGranule));
}

TEST_F(VirtualMemoryTest, AccessIsKeptForEachDevice) {
  const DevicePointer range = Mapped(kGranule);
  ASSERT_OK(Allow(range, kGranule, Access::kRead, 1));
  uint64_t flags = 9;
  MemoryLocation location{LocationType::kDevice, 0};
  ASSERT_OK(cuMemGetAccess(&flags, &location, range + 100));
  EXPECT_EQ(flags, 3u);
  location.id = 1;
  ASSERT_OK(cuMemGetAccess(&flags, &location, range + 100));
  EXPECT_EQ(flags, 1u);
  EXPECT_EQ(cuMemGetAccess(&flags, &location, range + kGranule), Result::kInvalidValue);
}

TEST_F(VirtualMemoryTest, MemoryStaysWhileAHandleOrAMappingHoldsIt) {
  const MemoryHandle handle = Create(kGranule);
  const DevicePointer range = Reserve(kGranule);
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  EXPECT_OK(cuMemRelease(handle));
  EXPECT_EQ(cuMemRelease(handle), Result::kInvalidValue);
  EXPECT_EQ(cuMemMap(range, kGranule, 0, handle, 0), Result::kInvalidValue);
  EXPECT_EQ(ebbtide_double_bytes_committed(0), static_cast<int64_t>(kGranule));
  // The handle can be had back from the address.
  MemoryHandle again = 0;
  ASSERT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + 17)));
  EXPECT_EQ(again, handle);
  ASSERT_OK(cuMemUnmap(range, kGranule));
  EXPECT_EQ(ebbtide_double_bytes_committed(0), static_cast<int64_t>(kGranule));
  EXPECT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)),
            Result::kInvalidValue);
  ASSERT_OK(cuMemRelease(again));
  EXPECT_EQ(ebbtide_double_bytes_committed(0), 0);
  EXPECT_EQ(ebbtide_double_bytes_peak(0), static_cast<int64_t>(kGranule));
}

TEST_F(VirtualMemoryTest, EachDeviceHasItsOwnCapacity) {
  Set("capacity", "6MiB");
  const AllocationProperties first = Properties(0);
  MemoryHandle handle = 0;
  ASSERT_OK(cuMemCreate(&handle, 2 * kGranule, &first, 0));
  MemoryHandle more = 0;
  EXPECT_EQ(cuMemCreate(&more, 2 * kGranule, &first, 0), Result::kOutOfMemory);
  Create(3 * kGranule, 1);
  ASSERT_OK(cuMemCreate(&more, kGranule, &first, 0));
  size_t free = 1;
  size_t total = 0;
  ASSERT_OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(total, 6 * kMiB);
  ASSERT_OK(cuMemRelease(handle));
  ASSERT_OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(free, 2 * kGranule);
}

TEST_F(VirtualMemoryTest, ThousandsOfPiecesNeedNoDescriptors) {
  Set("capacity", "16GiB");
  for (int i = 0; i < 4000; ++i) Create(kGranule);
  EXPECT_EQ(Counts().handles, 4000);
  EXPECT_EQ(Counts().bytes_committed, 4000 * static_cast<int64_t>(kGranule));
}

TEST_F(VirtualMemoryTest, ThreadsShareTheMachine) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      UseDevice(number % 2);
      const StreamHandle stream = NewStream();
      for (int round = 0; round < 50; ++round) {
        const DevicePointer range = Reserve(kGranule);
        const MemoryHandle handle = Create(kGranule, number % 2);
        EXPECT_OK(cuMemMap(range, kGranule, 0, handle, 0));
        EXPECT_OK(Allow(range, kGranule, Access::kReadWrite, number % 2));
        EXPECT_OK(cuMemsetD8Async(range, number + 1, kGranule, stream));
        EXPECT_OK(cuStreamSynchronize(stream));
        EXPECT_EQ(Byte(range + kGranule - 1), number + 1);
        EXPECT_OK(cuMemUnmap(range, kGranule));
        EXPECT_OK(cuMemRelease(handle));
        EXPECT_OK(cuMemAddressFree(range, kGranule));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Counts().bytes_committed, 0);
  EXPECT_EQ(Counts().reservations, 0);
  EXPECT_EQ(Hazard(), "");
}

TEST_F(VirtualMemoryTest, NothingIsLeftAfterAProgramHasCleanedUp) {
  const DevicePointer range = Mapped(3 * kGranule);
  ASSERT_OK(cuMemUnmap(range, 3 * kGranule));
  EXPECT_EQ(Counts().reservations, 1);
  ASSERT_OK(cuMemAddressFree(range, 3 * kGranule));
  ASSERT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EbbtideDoubleCounts left = Counts();
  EXPECT_EQ(left.bytes_peak, 3 * static_cast<int64_t>(kGranule));
  left.bytes_peak = 0;
  const EbbtideDoubleCounts nothing = {};
  EXPECT_EQ(std::memcmp(&left, &nothing, sizeof(left)), 0);
}

}  // namespace
}  // namespace ebbtide::hollow
