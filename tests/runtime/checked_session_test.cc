// SPDX-License-Identifier: Apache-2.0
//
// A BufferSession over an allocator that looks for misuse: faulty kernels are reported, correct
// ones give the same bytes in the same budget, also when their buffers leave and come back.

#include <cstring>
#include <memory>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/host_memory.h"
#include "gtest/gtest.h"
#include "runtime/buffer_session.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

class CheckedSessionTest : public testing::Test {
 protected:
  static constexpr Bytes kSize = Bytes(64 << 10);

  CheckedSessionTest() {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    CachingAllocator::Options options = {.budget = 1_MiB};
    options.check = CheckedBlocks::Options();
    allocator_ = std::make_unique<CachingAllocator>(&device_, options);
    session_ = *BufferSession::Create(allocator_.get(), {.runtime = {.min_bytes = Bytes(1)}});
  }

  // A buffer whose bytes are all `value`, made by a kernel that writes `excess` bytes too many.
  Buffer Make(int value, size_t excess = 0) {
    auto made = session_->Run(
        {.name = "fill", .outputs = {kSize}, .kernel = [value, excess](const KernelArguments& a) {
           memset(a.outputs[0], value, kSize.count() + excess);
           return absl::OkStatus();
         }});
    EXPECT_TRUE(made.ok()) << made.status();
    return (*made)[0];
  }

  HostMemory device_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unique_ptr<BufferSession> session_;
};

using CheckedSessionDeathTest = CheckedSessionTest;

TEST_F(CheckedSessionTest, BuffersThatLeaveAndComeBackPass) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 40; ++i) buffers.push_back(Make(i));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(session_
                    ->Read(buffers[i],
                           [&](const void* memory) {
                             EXPECT_EQ(static_cast<const char*>(memory)[kSize.count() - 1], i);
                           })
                    .ok());
  }
  EXPECT_GT(session_->runtime().stats().rematerializer.rebuilds, 20);
  EXPECT_LE(allocator_->stats().peak_held, 1_MiB);
  buffers.clear();
  allocator_->CheckInvariants();
}

TEST_F(CheckedSessionDeathTest, AKernelThatWritesPastItsOutputIsReported) {
  EXPECT_DEATH(
      {
        Make(7, /*excess=*/5);
        session_.reset();
        allocator_.reset();
      },
      "overrun: 5 bytes were written past a block(.|\n)*allocated by thread");
}

}  // namespace
}  // namespace ebbtide
