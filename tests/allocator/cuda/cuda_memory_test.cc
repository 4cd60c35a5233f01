// SPDX-License-Identifier: Apache-2.0
//
// CudaMemory over the FakeDriver: what it asks the driver for, and what it tells its caller.

#include "allocator/cuda/cuda_memory.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "allocator/caching_allocator.h"
#include "gmock/gmock.h"
#include "tests/allocator/cuda/fake_driver.h"
#include "tests/allocator/device_memory_conformance.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using testing::HasSubstr;

// A device together with the driver that it needs.
class MemoryOverFake : public DeviceMemory {
 public:
  explicit MemoryOverFake(const CudaMemory::Options& options)
      : driver_(FakeDriver::Functions()), memory_(*CudaMemory::Create(&driver_, options)) {}
  Bytes granularity() const override { return memory_->granularity(); }
  Bytes large_piece() const override { return memory_->large_piece(); }
  bool supports_partial_decommit() const override { return memory_->supports_partial_decommit(); }
  bool supports_move() const override { return memory_->supports_move(); }
  absl::StatusOr<void*> Reserve(Bytes size) override { return memory_->Reserve(size); }
  absl::Status Commit(void* address, Bytes size, Bytes piece) override {
    return memory_->Commit(address, size, piece);
  }
  absl::Status Decommit(void* address, Bytes size) override {
    return memory_->Decommit(address, size);
  }
  absl::Status Move(void* from, void* to, Bytes size) override {
    return memory_->Move(from, to, size);
  }
  absl::Status Unreserve(void* address, Bytes size) override {
    return memory_->Unreserve(address, size);
  }
  Bytes capacity() const override { return memory_->capacity(); }
  Bytes retained() const override { return memory_->retained(); }
  void BoundRetained(Room room) override { memory_->BoundRetained(std::move(room)); }
  absl::Status ReleaseRetained() override { return memory_->ReleaseRetained(); }
  bool is_host_accessible() const override { return memory_->is_host_accessible(); }

 private:
  FakeDriver fake_;
  CudaDriver driver_;
  std::unique_ptr<CudaMemory> memory_;
};

INSTANTIATE_TEST_SUITE_P(CudaVirtual, DeviceMemoryTest, testing::Values([] {
                           return std::make_unique<MemoryOverFake>(CudaMemory::Options{});
                         }));
INSTANTIATE_TEST_SUITE_P(CudaPooled, DeviceMemoryTest, testing::Values([] {
                           return std::make_unique<MemoryOverFake>(
                               CudaMemory::Options{.handle_pool = 16_MiB});
                         }));
INSTANTIATE_TEST_SUITE_P(CudaPlain, DeviceMemoryTest, testing::Values([] {
                           return std::make_unique<MemoryOverFake>(
                               CudaMemory::Options{.virtual_memory = false});
                         }));

class CudaMemoryTest : public testing::Test {
 protected:
  std::unique_ptr<CudaMemory> Make(const CudaMemory::Options& options = {}) {
    absl::StatusOr<std::unique_ptr<CudaMemory>> memory = CudaMemory::Create(&driver_, options);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  static char* At(void* address, Bytes offset) {
    return static_cast<char*>(address) + offset.count();
  }

  FakeDriver fake_;
  CudaDriver driver_{FakeDriver::Functions()};
};

TEST_F(CudaMemoryTest, AsksForTheGranularityAndChecksIt) {
  FakeDriver odd({.granularity = 64 << 10});
  EXPECT_EQ(Make()->granularity(), 64_KiB);
  FakeDriver no_power_of_two({.granularity = 3 << 20});
  const absl::Status status = CudaMemory::Create(&driver_, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("3145728 bytes is no power of two"));
}

TEST_F(CudaMemoryTest, LargePiecesAreWholeGranules) {
  EXPECT_EQ(Make()->large_piece(), 20_MiB);
  EXPECT_EQ(Make({.large_piece = 5_MiB})->large_piece(), 6_MiB);
  EXPECT_EQ(Make({.virtual_memory = false})->large_piece(), 2_MiB);
}

TEST_F(CudaMemoryTest, ACommitCreatesEachPieceAndOpensAllAtOnce) {
  auto memory = Make();
  void* a = *memory->Reserve(80_MiB);
  fake_.ForgetCalls();
  ASSERT_TRUE(memory->Commit(a, 60_MiB, 20_MiB).ok());
  EXPECT_EQ(fake_.Calls("cuMemCreate"), 3);
  EXPECT_EQ(fake_.Calls("cuMemMap"), 3);
  EXPECT_EQ(fake_.Calls("cuMemSetAccess"), 1);
  EXPECT_EQ(fake_.holdings().bytes, (60_MiB).count());
  fake_.ForgetCalls();
  ASSERT_TRUE(memory->Decommit(At(a, 20_MiB), 40_MiB).ok());
  EXPECT_EQ(fake_.Calls("cuMemUnmap"), 1);
  EXPECT_EQ(fake_.Calls("cuMemRelease"), 2);
  EXPECT_EQ(fake_.holdings().bytes, (20_MiB).count());
  EXPECT_TRUE(memory->Unreserve(a, 80_MiB).ok());
  EXPECT_EQ(fake_.holdings(), FakeDriver::Holdings{});
}

TEST_F(CudaMemoryTest, RefusesPartsOfPiecesAndWhatIsNotThere) {
  auto memory = Make();
  void* a = *memory->Reserve(40_MiB);
  ASSERT_TRUE(memory->Commit(a, 40_MiB, 20_MiB).ok());
  const FakeDriver::Holdings before = fake_.holdings();
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Decommit(a, 2_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Decommit(At(a, 2_MiB), 18_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Decommit(a, 22_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Decommit(At(a, 20_MiB), 40_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Commit(a, 2_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Commit(At(a, 38_MiB), 2_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Commit(At(a, 40_MiB), 2_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Unreserve(a, 20_MiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Unreserve(At(a, 20_MiB), 20_MiB)));
  EXPECT_EQ(fake_.holdings(), before);
  EXPECT_TRUE(memory->Unreserve(a, 40_MiB).ok());
}

TEST_F(CudaMemoryTest, OutOfMemoryIsToldFromOtherErrors) {
  auto memory = Make();
  void* a = *memory->Reserve(4_GiB);
  const absl::Status full = memory->Commit(a, 2_GiB, 1_GiB);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ(full.message(), "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (text of the driver)");
  fake_.FailAt(1, kCuErrorIllegalAddress, false, "cuMemCreate");
  const absl::Status other = memory->Commit(a, 2_MiB);
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(other.message(), "cuMemCreate: CUDA_ERROR_ILLEGAL_ADDRESS (text of the driver)");
  EXPECT_EQ(fake_.holdings().bytes, 0);
  EXPECT_TRUE(memory->Unreserve(a, 4_GiB).ok());
}

TEST_F(CudaMemoryTest, AnErrorThatStaysIsReportedByEachCall) {
  auto memory = Make({.handle_pool = 8_MiB, .exportable = true});
  void* a = *memory->Reserve(8_MiB);
  ASSERT_TRUE(memory->Commit(a, 4_MiB).ok());
  fake_.FailForGood(kCuErrorIllegalAddress);
  for (int i = 0; i < 2; ++i) {
    for (const absl::Status& status :
         {memory->Reserve(2_MiB).status(), memory->Commit(At(a, 4_MiB), 2_MiB),
          memory->Decommit(a, 4_MiB), memory->Move(a, At(a, 4_MiB), 2_MiB),
          memory->Unreserve(a, 8_MiB), memory->ReleaseRetained(), memory->AddPeer(1),
          memory->ExportPiece(a).status(), CudaMemory::Create(&driver_, {}).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(status.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
  }
  fake_.FailNever();
  EXPECT_TRUE(memory->Unreserve(a, 8_MiB).ok());
}

TEST_F(CudaMemoryTest, DecommittedPiecesAreKeptUpToTheLimit) {
  auto memory = Make({.handle_pool = 6_MiB});
  void* a = *memory->Reserve(40_MiB);
  ASSERT_TRUE(memory->Commit(a, 10_MiB).ok());
  ASSERT_TRUE(memory->Decommit(a, 10_MiB).ok());
  EXPECT_EQ(memory->retained(), 6_MiB);
  EXPECT_EQ(fake_.holdings().bytes, (6_MiB).count());
  fake_.ForgetCalls();
  ASSERT_TRUE(memory->Commit(a, 8_MiB).ok());
  EXPECT_EQ(fake_.Calls("cuMemCreate"), 1);  // three were kept
  EXPECT_EQ(memory->retained(), 0_B);
  ASSERT_TRUE(memory->Decommit(a, 8_MiB).ok());
  ASSERT_TRUE(memory->ReleaseRetained().ok());
  EXPECT_EQ(memory->retained(), 0_B);
  EXPECT_EQ(fake_.holdings().bytes, 0);
  EXPECT_TRUE(memory->Unreserve(a, 40_MiB).ok());
}

TEST_F(CudaMemoryTest, UnreservedPiecesAreKeptToo) {
  auto memory = Make({.handle_pool = 64_MiB});
  void* a = *memory->Reserve(20_MiB);
  ASSERT_TRUE(memory->Commit(a, 20_MiB, 20_MiB).ok());
  ASSERT_TRUE(memory->Unreserve(a, 20_MiB).ok());
  EXPECT_EQ(memory->retained(), 20_MiB);
  memory.reset();
  EXPECT_EQ(fake_.holdings(), FakeDriver::Holdings{});
}

TEST_F(CudaMemoryTest, ThePoolIsGivenUpBeforeTheDeviceIsOutOfMemory) {
  FakeDriver small({.memory = 40 << 20});
  auto memory = Make({.handle_pool = 64_MiB});
  void* a = *memory->Reserve(80_MiB);
  ASSERT_TRUE(memory->Commit(a, 20_MiB, 2_MiB).ok());
  ASSERT_TRUE(memory->Decommit(a, 20_MiB).ok());
  ASSERT_EQ(memory->retained(), 20_MiB);
  ASSERT_TRUE(memory->Commit(a, 40_MiB, 20_MiB).ok());  // another size: the pool does not help
  EXPECT_EQ(memory->retained(), 0_B);
  small.ForgetCalls();
  EXPECT_TRUE(absl::IsResourceExhausted(memory->Commit(At(a, 40_MiB), 2_MiB)));
  EXPECT_EQ(small.Calls("cuMemCreate"), 1);  // nothing was pooled: no second try
  EXPECT_TRUE(memory->Unreserve(a, 80_MiB).ok());
}

// What the pool keeps is on the device as well: with pieces of several sizes it fills up beside a
// full budget.
TEST_F(CudaMemoryTest, CommittedAndRetainedMemoryTogetherStayWithinTheBudget) {
  auto memory = Make({.large_piece = 20_MiB, .handle_pool = 64_MiB});
  CachingAllocator allocator(memory.get(), {.budget = 100_MiB});
  std::mt19937_64 random(1);
  std::vector<void*> blocks;
  Bytes most_retained;
  for (int step = 0; step < 2000; ++step) {
    const Bytes size = 1_MiB * static_cast<int64_t>(1 + random() % 30);
    const absl::StatusOr<void*> block = allocator.Allocate(size);
    if (block.ok()) blocks.push_back(*block);
    while (!blocks.empty() && (!block.ok() || random() % 3 == 0)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      allocator.Free(blocks.back());
      blocks.pop_back();
      if (random() % 2 == 0) break;
    }
    if (random() % 50 == 0) allocator.ReleaseCached(30_MiB);
    if (step == 1000) allocator.set_budget(80_MiB);
    most_retained = std::max(most_retained, memory->retained());
    ASSERT_LE(fake_.peak_bytes(), (100_MiB).count()) << "step " << step;
    if (allocator.stats().held <= 80_MiB && step > 1000) {
      ASSERT_LE(fake_.holdings().bytes, (80_MiB).count()) << "step " << step;
    }
  }
  EXPECT_GT(most_retained, 0_B);
  for (void* block : blocks) allocator.Free(block);
  allocator.ReleaseCached(Bytes::Max());
  EXPECT_EQ(fake_.holdings().bytes, 0);
}

TEST_F(CudaMemoryTest, APieceThatTheDriverDoesNotTakeBackIsPooledAndTriedAgain) {
  auto memory = Make();
  void* a = *memory->Reserve(4_MiB);
  ASSERT_TRUE(memory->Commit(a, 4_MiB).ok());
  fake_.FailAt(1, kCuErrorInvalidValue, false, "cuMemRelease");
  EXPECT_TRUE(memory->Decommit(a, 4_MiB).ok());  // the addresses are free all the same
  EXPECT_EQ(memory->retained(), 2_MiB);
  fake_.FailAt(1, kCuErrorInvalidValue, false, "cuMemRelease");
  EXPECT_FALSE(memory->ReleaseRetained().ok());
  EXPECT_EQ(memory->retained(), 2_MiB);
  EXPECT_TRUE(memory->ReleaseRetained().ok());
  EXPECT_EQ(fake_.holdings().handles, 0u);
  EXPECT_TRUE(memory->Unreserve(a, 4_MiB).ok());
}

TEST_F(CudaMemoryTest, AMoveTakesTheHandlesAlong) {
  auto memory = Make();
  char* a = static_cast<char*>(*memory->Reserve(8_MiB));
  char* b = static_cast<char*>(*memory->Reserve(8_MiB));
  ASSERT_TRUE(memory->Commit(a, 4_MiB).ok());
  ASSERT_TRUE(memory->Commit(At(a, 4_MiB), 4_MiB, 4_MiB).ok());
  const CuMemHandle second = fake_.HandleAt(At(a, 2_MiB));
  const CuMemHandle third = fake_.HandleAt(At(a, 4_MiB));
  fake_.ForgetCalls();
  ASSERT_TRUE(memory->Move(At(a, 2_MiB), b, 6_MiB).ok());
  EXPECT_EQ(fake_.HandleAt(b), second);
  EXPECT_EQ(fake_.HandleAt(At(b, 2_MiB)), third);
  EXPECT_EQ(fake_.DevicesWithAccess(b), std::set<int>{0});
  EXPECT_EQ(fake_.HandleAt(At(a, 2_MiB)), 0u);
  for (const char* call : {"cuMemCreate", "cuMemRelease"}) EXPECT_EQ(fake_.Calls(call), 0) << call;
  for (const char* call : {"cuMemSetAccess", "cuMemUnmap"}) EXPECT_EQ(fake_.Calls(call), 1) << call;
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Move(a, b, 2_MiB)));             // taken
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Move(b, a, 4_MiB)));             // cuts a piece
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Move(a, At(b, 8_MiB), 2_MiB)));  // not reserved
  EXPECT_TRUE(memory->Commit(At(a, 2_MiB), 6_MiB).ok());
  EXPECT_TRUE(memory->Decommit(At(b, 2_MiB), 4_MiB).ok());
  EXPECT_TRUE(memory->Unreserve(a, 8_MiB).ok());
  EXPECT_TRUE(memory->Unreserve(b, 8_MiB).ok());
}

TEST_F(CudaMemoryTest, PeersReachExistingAndLaterMemory) {
  auto memory = Make();
  char* a = static_cast<char*>(*memory->Reserve(4_MiB));
  char* b = static_cast<char*>(*memory->Reserve(8_MiB));  // adjoins a
  ASSERT_TRUE(memory->Commit(a, 4_MiB).ok());
  ASSERT_TRUE(memory->Commit(b, 2_MiB).ok());
  ASSERT_TRUE(memory->Commit(At(b, 4_MiB), 2_MiB).ok());
  fake_.ForgetCalls();
  ASSERT_TRUE(memory->AddPeer(1).ok());
  EXPECT_EQ(fake_.Calls("cuMemSetAccess"), 3);
  ASSERT_TRUE(memory->AddPeer(1).ok());
  ASSERT_TRUE(memory->AddPeer(0).ok());
  EXPECT_EQ(fake_.Calls("cuMemSetAccess"), 3);
  ASSERT_TRUE(memory->Commit(At(b, 2_MiB), 2_MiB).ok());
  ASSERT_TRUE(memory->Move(b, At(b, 6_MiB), 2_MiB).ok());
  for (char* place : {a, At(a, 2_MiB), At(b, 2_MiB), At(b, 4_MiB), At(b, 6_MiB)}) {
    EXPECT_EQ(fake_.DevicesWithAccess(place), (std::set<int>{0, 1}));
  }
  EXPECT_TRUE(absl::IsNotFound(memory->AddPeer(7)));
  memory.reset();
  EXPECT_EQ(fake_.holdings(), FakeDriver::Holdings{});
}

TEST_F(CudaMemoryTest, PeersCanBeNamedAtTheStart) {
  auto memory = Make({.peers = {1}});
  void* a = *memory->Reserve(2_MiB);
  ASSERT_TRUE(memory->Commit(a, 2_MiB).ok());
  EXPECT_EQ(fake_.DevicesWithAccess(a), (std::set<int>{0, 1}));
  EXPECT_TRUE(memory->Unreserve(a, 2_MiB).ok());
  FakeDriver apart({.peers = false});
  EXPECT_TRUE(absl::IsFailedPrecondition(CudaMemory::Create(&driver_, {.peers = {1}}).status()));
  EXPECT_EQ(apart.retained_contexts(), 0);
}

TEST_F(CudaMemoryTest, ExportsAPieceAndNeverUsesItAgain) {
  auto memory = Make({.handle_pool = 64_MiB, .exportable = true});
  char* a = static_cast<char*>(*memory->Reserve(40_MiB));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->ExportPiece(a).status()));
  ASSERT_TRUE(memory->Commit(a, 40_MiB, 20_MiB).ok());
  EXPECT_EQ(fake_.last_properties().requested_handle_types, kCuMemHandleTypePosixFileDescriptor);
  const auto exported = memory->ExportPiece(At(a, 22_MiB) + 12);
  ASSERT_TRUE(exported.ok());
  EXPECT_EQ(exported->fd, static_cast<int>(1000 + fake_.HandleAt(At(a, 20_MiB))));
  EXPECT_EQ(exported->size, 20_MiB);
  EXPECT_EQ(exported->offset, 2_MiB + 12_B);
  ASSERT_TRUE(memory->Decommit(a, 40_MiB).ok());
  EXPECT_EQ(memory->retained(), 20_MiB);
  EXPECT_TRUE(memory->Unreserve(a, 40_MiB).ok());
  auto closed = Make();
  EXPECT_TRUE(absl::IsFailedPrecondition(closed->ExportPiece(a).status()));
}

TEST_F(CudaMemoryTest, MemoryIsMadeForRdmaWhereTheDeviceAllowsIt) {
  auto memory = Make();
  void* a = *memory->Reserve(2_MiB);
  ASSERT_TRUE(memory->Commit(a, 2_MiB).ok());
  EXPECT_EQ(fake_.last_properties().flags.gpu_direct_rdma_capable, 1);
  EXPECT_EQ(fake_.last_properties().location.id, 0);
  EXPECT_EQ(fake_.last_properties().requested_handle_types, kCuMemHandleTypeNone);
  EXPECT_TRUE(memory->Unreserve(a, 2_MiB).ok());
  memory.reset();
  FakeDriver without({.attributes = {kCuAttributeVirtualMemory}});
  auto second = Make({.ordinal = 1});
  a = *second->Reserve(2_MiB);
  ASSERT_TRUE(second->Commit(a, 2_MiB).ok());
  EXPECT_EQ(without.last_properties().flags.gpu_direct_rdma_capable, 0);
  EXPECT_EQ(without.last_properties().location.id, 1);
  EXPECT_TRUE(second->Unreserve(a, 2_MiB).ok());
  EXPECT_TRUE(absl::IsUnimplemented(CudaMemory::Create(&driver_, {.exportable = true}).status()));
}

TEST_F(CudaMemoryTest, SaysWhereThereIsNoVirtualMemory) {
  EXPECT_TRUE(*CudaMemory::SupportsVirtualMemory(driver_, 0));
  EXPECT_TRUE(absl::IsNotFound(CudaMemory::SupportsVirtualMemory(driver_, 9).status()));
  FakeDriver without({.attributes = {}});
  EXPECT_FALSE(*CudaMemory::SupportsVirtualMemory(driver_, 0));
  EXPECT_THAT(CudaMemory::Create(&driver_, {}).status().message(),
              HasSubstr("device 0 has no virtual memory"));
  CudaFunctions functions = FakeDriver::Functions();
  functions.mem_map = nullptr;
  const CudaDriver old(functions);
  EXPECT_FALSE(*CudaMemory::SupportsVirtualMemory(old, 0));
  const absl::Status status = CudaMemory::Create(&old, {}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(status.message(), HasSubstr("lacks cuMemMap"));
  EXPECT_TRUE(CudaMemory::Create(&old, {.virtual_memory = false}).ok());
}

TEST_F(CudaMemoryTest, OptionsThatMakeNoSenseAreRefused) {
  for (const CudaMemory::Options& options :
       std::vector<CudaMemory::Options>{{.large_piece = 0_B},
                                        {.handle_pool = Bytes(-1)},
                                        {.virtual_memory = false, .handle_pool = 2_MiB},
                                        {.virtual_memory = false, .peers = {1}},
                                        {.virtual_memory = false, .exportable = true}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CudaMemory::Create(&driver_, options).status()));
  }
  EXPECT_TRUE(absl::IsNotFound(CudaMemory::Create(&driver_, {.ordinal = 2}).status()));
}

TEST_F(CudaMemoryTest, PlainMemoryIsAlignedWhateverTheDriverGives) {
  FakeDriver askew({.alloc_offset = 4096});
  auto memory = Make({.virtual_memory = false});
  void* a = *memory->Reserve(4_MiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % (2_MiB).count(), 0u);
  EXPECT_EQ(askew.holdings().bytes, (6_MiB).count());
  EXPECT_TRUE(absl::IsUnimplemented(memory->AddPeer(1)));
  EXPECT_TRUE(memory->Unreserve(a, 4_MiB).ok());
  EXPECT_EQ(askew.holdings(), FakeDriver::Holdings{});
}

TEST_F(CudaMemoryTest, TheCallersContextAndCaptureModeStayAsTheyWere) {
  auto& stack = FakeDriver::ContextStack();
  stack = {fake_.PrimaryContext(1)};
  FakeDriver::CaptureMode() = 1;
  for (bool virtual_memory : {true, false}) {
    auto memory = Make({.virtual_memory = virtual_memory});
    void* a = *memory->Reserve(4_MiB);
    if (virtual_memory) {
      EXPECT_TRUE(memory->Commit(a, 2_MiB).ok());
      EXPECT_TRUE(memory->Move(a, At(a, 2_MiB), 2_MiB).ok());
      EXPECT_FALSE(memory->Commit(At(a, 2_MiB), 2_MiB).ok());
      EXPECT_TRUE(memory->AddPeer(1).ok());
    }
    EXPECT_TRUE(memory->Unreserve(a, 4_MiB).ok());
    EXPECT_TRUE(memory->ReleaseRetained().ok());
    memory.reset();
    EXPECT_EQ(stack, std::vector<CuContext>{fake_.PrimaryContext(1)});
    EXPECT_EQ(FakeDriver::CaptureMode(), 1);
    EXPECT_EQ(fake_.retained_contexts(), 0);
  }
  auto memory = Make();
  fake_.FailAt(1, kCuErrorIllegalAddress, false, "cuThreadExchangeStreamCaptureMode");
  EXPECT_FALSE(memory->Reserve(4_MiB).ok());
  EXPECT_EQ(stack, std::vector<CuContext>{fake_.PrimaryContext(1)});
  stack.clear();
  FakeDriver::CaptureMode() = 0;
}

TEST_F(CudaMemoryTest, AThreadWithoutAContextMayCallEvenWhileAnotherCaptures) {
  const CuStream stream = fake_.CreateStream();
  fake_.BeginCapture(stream);
  std::thread([&] {
    for (bool virtual_memory : {true, false}) {
      auto memory = Make({.virtual_memory = virtual_memory});
      void* a = *memory->Reserve(4_MiB);
      EXPECT_EQ(memory->Commit(a, 4_MiB).ok(), virtual_memory);
      EXPECT_TRUE(memory->Unreserve(a, 4_MiB).ok());
    }
  }).join();
  EXPECT_FALSE(fake_.capture_broken());
}

TEST_F(CudaMemoryTest, WhatIsStillReservedIsTakenBackAtTheEnd) {
  for (bool virtual_memory : {true, false}) {
    auto memory = Make({.virtual_memory = virtual_memory});
    void* a = *memory->Reserve(8_MiB);
    EXPECT_EQ(memory->Commit(At(a, 2_MiB), 4_MiB).ok(), virtual_memory);
    memory.reset();
    EXPECT_EQ(fake_.holdings(), FakeDriver::Holdings{});
  }
}

}  // namespace
}  // namespace ebbtide
