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
  EXPECT_GE(device_->large_piece(), granule_);
  EXPECT_EQ(device_->large_piece() % granule_, Bytes(0));
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

TEST_P(DeviceMemoryTest, PiecesComeAndGoWhole) {
  if (!device_->supports_partial_decommit()) GTEST_SKIP() << "needs partial decommit";
  char* a = Reserve(9);
  const int64_t g = granule_.count();
  ASSERT_TRUE(device_->Commit(a + g, granule_ * 8, granule_ * 4).ok());
  if (device_->is_host_accessible()) memset(a + g, 1, 8 * g);
  ASSERT_TRUE(device_->Decommit(a + 5 * g, granule_ * 4).ok());
  if (device_->is_host_accessible()) {
    EXPECT_EQ(a[g], 1);
    EXPECT_EQ(a[5 * g - 1], 1);
  }
  // What has gone may come back in other pieces, and pieces of several sizes may go at once.
  ASSERT_TRUE(device_->Commit(a + 5 * g, granule_ * 3).ok());
  ASSERT_TRUE(device_->Decommit(a + g, granule_ * 6).ok());
  Unreserve(a, 9);
}

TEST_P(DeviceMemoryTest, ALargePieceIsMemoryLikeAnyOther) {
  if (!device_->supports_partial_decommit()) GTEST_SKIP() << "needs partial decommit";
  const Bytes large = device_->large_piece();
  const auto granules = static_cast<int>(large / granule_);
  char* a = Reserve(3 * granules);
  ASSERT_TRUE(device_->Commit(a, large * 3, large).ok());
  if (device_->is_host_accessible()) memset(a, 1, 3 * large.count());
  EXPECT_TRUE(device_->Decommit(a + large.count(), large).ok());
  Unreserve(a, 3 * granules);
}

TEST_P(DeviceMemoryTest, RejectsPiecesThatDoNotDivideTheSize) {
  if (!device_->supports_partial_decommit()) GTEST_SKIP() << "needs partial decommit";
  char* a = Reserve(8);
  for (Bytes piece : {Bytes(0), Bytes(64), granule_ - Bytes(1), granule_ * 3, granule_ * 8,
                      Bytes(0) - granule_}) {
    EXPECT_TRUE(absl::IsInvalidArgument(device_->Commit(a, granule_ * 4, piece))) << piece;
  }
  EXPECT_TRUE(device_->Commit(a, granule_ * 4, granule_ * 4).ok());
  Unreserve(a, 8);
}

TEST_P(DeviceMemoryTest, MovesWholePieces) {
  char* a = Reserve(8);
  char* b = Reserve(8);
  const int64_t g = granule_.count();
  if (!device_->supports_move()) {
    EXPECT_TRUE(absl::IsUnimplemented(device_->Move(a, b, granule_)));
    Unreserve(a, 8);
    Unreserve(b, 8);
    GTEST_SKIP() << "needs Move";
  }
  ASSERT_TRUE(device_->Commit(a, granule_ * 4, granule_ * 2).ok());
  ASSERT_TRUE(device_->Commit(a + 4 * g, granule_ * 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Move(a + 64, b, granule_)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Move(a, b + 64, granule_)));
  EXPECT_TRUE(absl::IsInvalidArgument(device_->Move(a, b, granule_ + Bytes(64))));
  // One piece of two granules and two of one, to where no piece of two is aligned.
  ASSERT_TRUE(device_->Move(a + 2 * g, b + g, granule_ * 4).ok());
  if (device_->is_host_accessible()) memset(b + g, 1, 4 * g);
  EXPECT_TRUE(device_->Commit(a + 2 * g, granule_ * 4).ok());
  EXPECT_TRUE(device_->Decommit(b + 4 * g, granule_).ok());
  EXPECT_TRUE(device_->Decommit(b + g, granule_ * 2).ok());
  // Within one range, and back.
  ASSERT_TRUE(device_->Move(b + 3 * g, b, granule_).ok());
  ASSERT_TRUE(device_->Move(b, b + 3 * g, granule_).ok());
  Unreserve(a, 8);
  Unreserve(b, 8);
}

TEST_P(DeviceMemoryTest, WhatWasMovedAwayCannotBeReadUnnoticed) {
  if (!device_->supports_move() || !device_->is_host_accessible()) {
    GTEST_SKIP() << "needs Move and readable bytes";
  }
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  volatile char* a = Reserve(2);
  ASSERT_TRUE(device_->Commit(const_cast<char*>(a), granule_).ok());
  a[0] = 1;
  ASSERT_TRUE(
      device_->Move(const_cast<char*>(a), const_cast<char*>(a) + granule_.count(), granule_).ok());
  EXPECT_DEATH(a[0] = 2, "");
  a[granule_.count()] = 3;
  Unreserve(const_cast<char*>(a), 2);
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
