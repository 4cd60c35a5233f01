// SPDX-License-Identifier: Apache-2.0
//
// What every DeviceMemory must do. To test a new one, include this header and instantiate:
//
//     INSTANTIATE_TEST_SUITE_P(MyDevice, DeviceMemoryTest, testing::Values(MakeMyDevice));
//
// Each test makes its own device; the suite runs on one thread but for the test that says so.

#ifndef EBBTIDE_TESTS_ALLOCATOR_DEVICE_MEMORY_CONFORMANCE_H_
#define EBBTIDE_TESTS_ALLOCATOR_DEVICE_MEMORY_CONFORMANCE_H_

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/device_memory.h"
#include "gtest/gtest.h"

namespace ebbtide {

using MakeDevice = std::function<std::unique_ptr<DeviceMemory>()>;

class DeviceMemoryTest : public testing::TestWithParam<MakeDevice> {
 protected:
  DeviceMemoryTest() : device_(GetParam()()), granule_(device_->granularity()) {}

  char* Reserve(int granules) {
    absl::StatusOr<void*> address = device_->Reserve(granule_ * granules);
    EXPECT_TRUE(address.ok()) << address.status().ToString();
    return address.ok() ? static_cast<char*>(*address) : nullptr;
  }
  void Unreserve(char* address, int granules) {
    EXPECT_TRUE(device_->Unreserve(address, granule_ * granules).ok());
  }

  std::unique_ptr<DeviceMemory> device_;
  Bytes granule_;
};

TEST_P(DeviceMemoryTest, StatesSensibleUnits) {
  EXPECT_GE(granule_, Bytes(4096));
  EXPECT_EQ(granule_.count() & (granule_.count() - 1), 0);
  EXPECT_EQ(device_->preferred_unit() % granule_, Bytes(0));
  EXPECT_GE(device_->capacity(), granule_);
}

TEST_P(DeviceMemoryTest, RangesAreAlignedAndApart) {
  char* a = Reserve(3);
  char* b = Reserve(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % granule_.count(), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % granule_.count(), 0u);
  EXPECT_TRUE(a + 3 * granule_.count() <= b || b + 5 * granule_.count() <= a);
  Unreserve(a, 3);
  Unreserve(b, 5);
}

TEST_P(DeviceMemoryTest, RejectsSizesThatAreNoGranules) {
  for (Bytes size : {Bytes(0), Bytes(1), granule_ + Bytes(64), Bytes(0) - granule_}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Reserve(size).status())) << size;
  }
}

TEST_P(DeviceMemoryTest, AnImpossibleSizeIsAnErrorAndHarmless) {
  const Bytes huge = Bytes(int64_t{1} << 62);
  EXPECT_TRUE(absl::IsResourceExhausted(device_->Reserve(huge).status()));
  char* a = Reserve(1);
  ASSERT_NE(a, nullptr);
  Unreserve(a, 1);
}

TEST_P(DeviceMemoryTest, CommitsAndDecommitsAnyRun) {
  char* a = Reserve(8);
  const int64_t g = granule_.count();
  if (!device_->supports_partial_decommit()) {
    EXPECT_TRUE(absl::IsUnimplemented(device_->Commit(a, granule_)));
    EXPECT_TRUE(absl::IsUnimplemented(device_->Decommit(a, granule_)));
    if (device_->is_host_accessible()) memset(a, 1, 8 * g);
    Unreserve(a, 8);
    return;
  }
  ASSERT_TRUE(device_->Commit(a + g, granule_ * 5).ok());
  ASSERT_TRUE(device_->Decommit(a + 2 * g, granule_ * 2).ok());
  ASSERT_TRUE(device_->Commit(a + 3 * g, granule_).ok());
  ASSERT_TRUE(device_->Commit(a, granule_).ok());
  if (device_->is_host_accessible()) {
    memset(a, 1, 2 * g);
    memset(a + 3 * g, 2, 3 * g);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Commit(a + 64, granule_)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Decommit(a, granule_ - Bytes(64))));
  Unreserve(a, 8);
}

TEST_P(DeviceMemoryTest, DecommitKeepsTheNeighboursContent) {
  if (!device_->supports_partial_decommit() || !device_->is_host_accessible()) {
    GTEST_SKIP() << "needs partial decommit and readable bytes";
  }
  char* a = Reserve(64);
  const int64_t g = granule_.count();
  ASSERT_TRUE(device_->Commit(a, granule_ * 64).ok());
  for (int64_t i = 0; i < 64 * g; i += 512) a[i] = static_cast<char>(i / 512 % 127);
  ASSERT_TRUE(device_->Decommit(a + 10 * g, granule_ * 3).ok());
  ASSERT_TRUE(device_->Decommit(a + 33 * g, granule_).ok());
  ASSERT_TRUE(device_->Commit(a + 11 * g, granule_).ok());
  for (int64_t i = 0; i < 64 * g; i += 512) {
    const int64_t granule = i / g;
    if ((granule >= 10 && granule < 13) || granule == 33) continue;
    ASSERT_EQ(a[i], static_cast<char>(i / 512 % 127)) << "byte " << i;
  }
  Unreserve(a, 64);
}

TEST_P(DeviceMemoryTest, DecommittedMemoryCannotBeReadUnnoticed) {
  if (!device_->supports_partial_decommit() || !device_->is_host_accessible()) {
    GTEST_SKIP() << "needs partial decommit and readable bytes";
  }
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  volatile char* a = Reserve(2);
  ASSERT_TRUE(device_->Commit(const_cast<char*>(a), granule_ * 2).ok());
  a[0] = 1;
  ASSERT_TRUE(device_->Decommit(const_cast<char*>(a), granule_).ok());
  EXPECT_DEATH(a[0] = 2, "");
  a[granule_.count()] = 3;
  Unreserve(const_cast<char*>(a), 2);
}

TEST_P(DeviceMemoryTest, ThreadsWorkOnTheirOwnRanges) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 50; ++i) {
        char* a = Reserve(4);
        if (device_->supports_partial_decommit()) {
          EXPECT_TRUE(device_->Commit(a, granule_ * 4).ok());
          EXPECT_TRUE(device_->Decommit(a + granule_.count(), granule_ * 2).ok());
        }
        Unreserve(a, 4);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_DEVICE_MEMORY_CONFORMANCE_H_
