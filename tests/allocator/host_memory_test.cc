// SPDX-License-Identifier: Apache-2.0

#include "allocator/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/allocator/device_memory_conformance.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

INSTANTIATE_TEST_SUITE_P(HostMemory, DeviceMemoryTest,
                         testing::Values([] { return std::make_unique<HostMemory>(); }));

// Resident bytes of this process, as the kernel counts them.
int64_t ResidentBytes() {
  long pages = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%ld %ld", &pages, &resident) != 2) ADD_FAILURE();
  if (file != nullptr) fclose(file);
  return static_cast<int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

// ThreadSanitizer's shadow of what is touched is resident too, several times as large.
#ifdef __SANITIZE_THREAD__
#define EBB_SKIP_WHERE_MEMORY_HAS_A_SHADOW GTEST_SKIP() << "resident memory includes the shadow"
#else
#define EBB_SKIP_WHERE_MEMORY_HAS_A_SHADOW (void)0
#endif

TEST(HostMemoryTest, DecommitLowersResidentMemory) {
  EBB_SKIP_WHERE_MEMORY_HAS_A_SHADOW;
  HostMemory memory;
  const Bytes size = 64_MiB;
  char* a = static_cast<char*>(memory.Reserve(size).value());
  ASSERT_TRUE(memory.Commit(a, size).ok());
  const int64_t before = ResidentBytes();
  memset(a, 1, size.count());
  EXPECT_GT(ResidentBytes() - before, (60_MiB).count());
  ASSERT_TRUE(memory.Decommit(a, size / 2).ok());
  EXPECT_LT(ResidentBytes() - before, (36_MiB).count());
  ASSERT_TRUE(memory.Unreserve(a, size).ok());
  EXPECT_LT(ResidentBytes() - before, (4_MiB).count());
}

TEST(HostMemoryTest, ReservingCostsNoMemory) {
  HostMemory memory;
  const int64_t before = ResidentBytes();
  void* a = memory.Reserve(64_GiB).value();
  EXPECT_LT(ResidentBytes() - before, (1_MiB).count());
  EXPECT_TRUE(memory.Unreserve(a, 64_GiB).ok());
}

// A huge page must not fill granules that were not committed: held would be less than what is used.
TEST(HostMemoryTest, TouchingOneGranuleCostsOneGranule) {
  EBB_SKIP_WHERE_MEMORY_HAS_A_SHADOW;
  HostMemory memory;
  char* a = static_cast<char*>(memory.Reserve(64_MiB).value());
  const int64_t before = ResidentBytes();
  for (int unit = 0; unit < 32; ++unit) {
    char* granule = a + unit * (2_MiB).count() + (1_MiB).count();
    ASSERT_TRUE(memory.Commit(granule, 64_KiB).ok());
    memset(granule, 1, (64_KiB).count());
  }
  EXPECT_LT(ResidentBytes() - before, (4_MiB).count());
  EXPECT_TRUE(memory.Unreserve(a, 64_MiB).ok());
}

}  // namespace
}  // namespace ebbtide
