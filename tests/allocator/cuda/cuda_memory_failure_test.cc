// SPDX-License-Identifier: Apache-2.0
//
// Walks through a CudaMemory's life once for each driver call in it, with that call failing: once,
// or together with all that follow, so that undoing fails as well. A step that failed must have
// left everything as it was, must work when it is tried again, and nothing may be left at the end.

#include <functional>
#include <string>
#include <vector>

#include "allocator/cuda/cuda_memory.h"
#include "gtest/gtest.h"
#include "tests/allocator/cuda/fake_driver.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

struct Failure {
  CuResult result;
  bool for_ever;
  bool virtual_memory;
};

class Life {
 public:
  explicit Life(const Failure& failure) : failure_(failure) {}

  // With call number `n` failing. Returns false when there is no such call.
  bool Live(int64_t n) {
    SCOPED_TRACE("driver call " + std::to_string(n));
    if (n > 0) fake_.FailAt(n, failure_.result, failure_.for_ever);
    Create();
    if (failure_.virtual_memory) {
      VirtualSteps();
    } else {
      Step("reserve", [&] { return Reserve(6_MiB, &a_); });
      Step("unreserve", [&] { return memory_->Unreserve(a_, 6_MiB); });
    }
    const bool failed = fake_.failed();
    fake_.FailNever();
    EXPECT_TRUE(memory_->ReleaseRetained().ok());
    EXPECT_EQ(memory_->retained(), 0_B);
    EXPECT_EQ(fake_.holdings(), FakeDriver::Holdings{});
    memory_.reset();
    EXPECT_EQ(fake_.retained_contexts(), 0);
    EXPECT_TRUE(FakeDriver::ContextStack().empty());
    EXPECT_EQ(FakeDriver::CaptureMode(), 0);
    return failed;
  }

  // What the steps left behind, one after the other: bytes that are committed, and all mappings.
  std::vector<FakeDriver::Holdings> trace;

 private:
  void VirtualSteps() {
    Step("reserve", [&] { return Reserve(16_MiB, &a_); });
    Step("reserve more", [&] { return Reserve(16_MiB, &b_); });
    Step("commit", [&] { return memory_->Commit(a_, 6_MiB); });
    Step("commit large", [&] { return memory_->Commit(a_ + (8_MiB).count(), 8_MiB, 4_MiB); });
    Step("decommit", [&] { return memory_->Decommit(a_, 4_MiB); });
    Step("commit from the pool", [&] { return memory_->Commit(a_, 4_MiB); });
    Step("move", [&] { return memory_->Move(a_ + (2_MiB).count(), b_, 4_MiB); });
    Step("add a peer", [&] { return memory_->AddPeer(1); });
    Step("commit for both", [&] { return memory_->Commit(a_ + (2_MiB).count(), 2_MiB); });
    Step("decommit large", [&] { return memory_->Decommit(a_ + (8_MiB).count(), 8_MiB); });
    Step(
        "unreserve", [&] { return memory_->Unreserve(a_, 16_MiB); }, /*in_parts=*/true);
    Step(
        "unreserve more", [&] { return memory_->Unreserve(b_, 16_MiB); }, /*in_parts=*/true);
  }

  void Create() {
    const CudaMemory::Options options =
        failure_.virtual_memory ? CudaMemory::Options{.handle_pool = 4_MiB, .exportable = true}
                                : CudaMemory::Options{.virtual_memory = false};
    auto memory = CudaMemory::Create(&driver_, options);
    if (!memory.ok()) {
      fake_.FailNever();
      const int retained = fake_.retained_contexts();
      EXPECT_LE(retained, failure_.for_ever ? 1 : 0);
      if (retained == 1) FakeDriver::Functions().device_primary_ctx_release(0);  // had failed too
      memory = CudaMemory::Create(&driver_, options);
    }
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }

  absl::Status Reserve(Bytes size, char** address) {
    absl::StatusOr<void*> got = memory_->Reserve(size);
    if (got.ok()) *address = static_cast<char*>(*got);
    return got.status();
  }

  void Step(const std::string& name, const std::function<absl::Status()>& step,
            bool in_parts = false) {
    SCOPED_TRACE(name);
    const FakeDriver::Holdings before = fake_.holdings();
    const Bytes pooled = memory_->retained();
    absl::Status status = step();
    if (!status.ok()) {
      EXPECT_TRUE(fake_.failed());
      EXPECT_EQ(absl::IsResourceExhausted(status), failure_.result == kCuErrorOutOfMemory);
      if (!failure_.for_ever && !in_parts) {
        EXPECT_EQ(fake_.holdings(), before);
        EXPECT_EQ(memory_->retained(), pooled);
      }
      fake_.FailNever();
      status = step();
    }
    EXPECT_TRUE(status.ok()) << status;
    Note();
  }

  // Addresses and kept pieces differ from run to run, all else must not.
  void Note() {
    FakeDriver::Holdings now = fake_.holdings();
    now.bytes -= memory_->retained().count();
    now.handles = 0;
    trace.push_back(now);
  }

  const Failure failure_;
  FakeDriver fake_;
  CudaDriver driver_{FakeDriver::Functions()};
  std::unique_ptr<CudaMemory> memory_;
  char* a_ = nullptr;
  char* b_ = nullptr;
};

class CudaMemoryFailureTest : public testing::TestWithParam<Failure> {};

TEST_P(CudaMemoryFailureTest, EachDriverCall) {
  Life undisturbed(GetParam());
  undisturbed.Live(0);
  int64_t n = 1;
  for (bool failed = true; failed; ++n) {
    Life life(GetParam());
    failed = life.Live(n);
    EXPECT_EQ(life.trace, undisturbed.trace) << "driver call " << n;
    if (HasFailure()) break;
  }
  EXPECT_GT(n, GetParam().virtual_memory ? 60 : 8);
}

INSTANTIATE_TEST_SUITE_P(All, CudaMemoryFailureTest,
                         testing::Values(Failure{kCuErrorOutOfMemory, false, true},
                                         Failure{kCuErrorOutOfMemory, true, true},
                                         Failure{kCuErrorIllegalAddress, false, true},
                                         Failure{kCuErrorIllegalAddress, true, true},
                                         Failure{kCuErrorOutOfMemory, false, false},
                                         Failure{kCuErrorIllegalAddress, true, false}));

}  // namespace
}  // namespace ebbtide
