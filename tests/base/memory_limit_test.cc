// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace literals;

constexpr char kUnified[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr char kMemoryController[] =
    "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

// A machine made of files, with 16 GiB of memory.
class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/memory_limit_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    Write("/proc/meminfo", "MemFree:  1 kB\nMemTotal:       16777216 kB\nSwapTotal: 4 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MemoryLimitTest, WithoutGroupsTheMachinesMemoryCounts) {
  EXPECT_EQ(MachineMemoryLimit(root_), 16_GiB);
}

TEST_F(MemoryLimitTest, NothingReadableDoesNotLimit) {
  EXPECT_EQ(MachineMemoryLimit(root_ + "/nothing"), Bytes::Max());
}

TEST_F(MemoryLimitTest, UnifiedGroupAndItsParentsLimit) {
  Write("/proc/self/mountinfo", kUnified);
  Write("/proc/self/cgroup", "0::/batch/job7/step\n");
  Write("/sys/fs/cgroup/batch/job7/step/memory.max", "max\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 16_GiB);
  Write("/sys/fs/cgroup/batch/job7/memory.max", "2147483648\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 2_GiB);
  Write("/sys/fs/cgroup/batch/job7/step/memory.max", "3221225472\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 2_GiB);
  Write("/sys/fs/cgroup/batch/memory.max", "1073741824\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 1_GiB);
  Write("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 512_MiB);
}

TEST_F(MemoryLimitTest, ALimitAboveTheMachineChangesNothing) {
  Write("/proc/self/mountinfo", kUnified);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1099511627776\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 16_GiB);
}

TEST_F(MemoryLimitTest, OldMemoryControllerLimits) {
  Write("/proc/self/mountinfo", kMemoryController);
  Write("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/slurm/job\n0::/\n");
  Write("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 16_GiB);
  Write("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "4294967296\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 4_GiB);
}

// In a container the group's path is the host's, and only the group itself is mounted.
TEST_F(MemoryLimitTest, ContainerSeesOnlyItsOwnGroup) {
  Write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Write("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 2_GiB);
  Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 1_GiB);
  Write("/proc/self/cgroup", "4:memory:/elsewhere/inner\n");
  EXPECT_EQ(MachineMemoryLimit(root_), 2_GiB);
}

TEST_F(MemoryLimitTest, ThisMachineHasSomeMemory) {
  EXPECT_GT(MachineMemoryLimit(), 64_MiB);
  EXPECT_LT(MachineMemoryLimit(), 1024_TiB);
}

}  // namespace
}  // namespace ebbtide
