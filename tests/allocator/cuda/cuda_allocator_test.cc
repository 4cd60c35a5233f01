// SPDX-License-Identifier: Apache-2.0
//
// CachingAllocator over CudaMemory and CudaStreamOrder, on a driver library: the double in every
// run of the tests, on a GPU by tools/gpu-check. The double works late and in an order that a seed
// chooses, and stops the program when memory is taken from under queued work, or used on two
// streams without an order between them.

#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/cuda/cuda_memory.h"
#include "allocator/cuda/cuda_stream_order.h"
#include "tests/allocator/allocator_conformance.h"
#include "tests/allocator/allocator_hazards_conformance.h"
#include "tests/allocator/allocator_stress_conformance.h"
#include "tests/allocator/cuda/library_under_test.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

const LibraryUnderTest& Library() { return LibraryUnderTest::Get(); }

std::unique_ptr<CudaMemory> Make(const CudaMemory::Options& options) {
  absl::StatusOr<std::unique_ptr<CudaMemory>> memory =
      CudaMemory::Create(&Library().driver(), options);
  EBB_CHECK(memory.ok()) << memory.status().ToString();
  return *std::move(memory);
}
std::unique_ptr<DeviceMemory> MakeVirtual() { return Make({}); }
std::unique_ptr<DeviceMemory> MakePooled() { return Make({.handle_pool = 32_MiB}); }
std::unique_ptr<DeviceMemory> MakePlain() { return Make({.virtual_memory = false}); }

INSTANTIATE_TEST_SUITE_P(CudaVirtual, AllocatorTest, testing::Values(MakeVirtual));
INSTANTIATE_TEST_SUITE_P(CudaPooled, AllocatorTest, testing::Values(MakePooled));
INSTANTIATE_TEST_SUITE_P(CudaPlain, AllocatorTest, testing::Values(MakePlain));
INSTANTIATE_TEST_SUITE_P(CudaVirtual, AllocatorHazardTest, testing::Values(MakeVirtual));
INSTANTIATE_TEST_SUITE_P(CudaPlain, AllocatorHazardTest, testing::Values(MakePlain));
INSTANTIATE_TEST_SUITE_P(CudaVirtual, AllocatorHazardDeathTest, testing::Values(MakeVirtual));
INSTANTIATE_TEST_SUITE_P(CudaVirtual, AllocatorStressTest, testing::Values(MakeVirtual));
INSTANTIATE_TEST_SUITE_P(CudaPlain, AllocatorStressTest, testing::Values(MakePlain));

// One device, its streams, and an allocator over both.
class CudaAllocatorTest : public testing::Test {
 protected:
  CudaAllocatorTest() {
    if (Library().is_double()) {
      Library().Reset();
      Library().Set("async", "7");
      Library().Set("strict", "1");
      Library().Set("reuse_handles", "1");
    }
    Library().Call("cuInit", 0u);
    Library().Call("cuDevicePrimaryCtxRetain", &context_, 0);
    Library().Call("cuCtxSetCurrent", context_);
    MakeAllocator({});
  }
  ~CudaAllocatorTest() override {
    Library().Call("cuCtxSetCurrent", context_);
    Library().Call("cuCtxSynchronize");
    allocator_->CheckInvariants();
    allocator_.reset();
    memory_.reset();
    order_.reset();
    Library().Call("cuCtxSetCurrent", CuContext{});
    Library().Call("cuDevicePrimaryCtxRelease_v2", 0);
    if (Library().is_double()) Library().Reset();
  }

  void MakeAllocator(const CudaMemory::Options& options, Bytes budget = Bytes::Max()) {
    allocator_.reset();
    memory_ = Make(options);
    order_ = *CudaStreamOrder::Create(&Library().driver(), options.ordinal);
    allocator_ = std::make_unique<CachingAllocator>(
        memory_.get(), CachingAllocator::Options{.budget = budget, .streams = order_.get()});
  }

  static CuStream CreateStream() {
    CuStream stream = nullptr;
    Library().Call("cuStreamCreate", &stream, 1u);  // one that does not wait for the default stream
    return stream;
  }
  // Queues a write of all of the block.
  static void Write(CuStream stream, void* block, Bytes size) {
    Library().Call("cuMemsetD8Async", reinterpret_cast<CuDevicePtr>(block),
                   static_cast<unsigned char>(1), static_cast<size_t>(size.count()), stream);
  }
  void* Get(Bytes size, StreamId stream = kDefaultStream, PoolId pool = kSharedPool) {
    const absl::StatusOr<void*> block =
        allocator_->Allocate(size, {.stream = stream, .pool = pool});
    EXPECT_TRUE(block.ok()) << block.status();
    return block.value_or(nullptr);
  }
  static CuContext Current() {
    CuContext current = nullptr;
    Library().Call("cuCtxGetCurrent", &current);
    return current;
  }

  CuContext context_ = nullptr;
  std::unique_ptr<CudaMemory> memory_;
  std::unique_ptr<CudaStreamOrder> order_;
  std::unique_ptr<CachingAllocator> allocator_;
};

TEST_F(CudaAllocatorTest, RandomProgramsOnSeveralStreamsRaceNowhere) {
  struct Live {
    void* block;
    Bytes size;
    size_t stream;
  };
  MakeAllocator({.large_piece = 4_MiB, .handle_pool = 16_MiB}, 96_MiB);
  std::mt19937_64 random(11);
  const CuStream handles[] = {nullptr, CreateStream(), CreateStream(), CreateStream()};
  std::vector<StreamId> ids;
  for (CuStream handle : handles) ids.push_back(*order_->Register(handle));
  std::vector<Live> live;
  for (int step = 0; step < 3000; ++step) {
    const size_t stream = random() % 4;
    if (live.size() < 10 || (live.size() < 40 && random() % 2 == 0)) {
      const Bytes size(static_cast<int64_t>(1 + random() % (step % 3 == 0 ? 6'000'000 : 5'000)));
      const absl::StatusOr<void*> block = allocator_->Allocate(size, {.stream = ids[stream]});
      if (block.ok()) {
        Write(handles[stream], *block, size);
        live.push_back({*block, size, stream});
        continue;
      }
      ASSERT_TRUE(absl::IsResourceExhausted(block.status())) << block.status();
    }
    Live& used = live[random() % live.size()];
    if (random() % 3 == 0 && stream != used.stream) {
      // Ordered after the work so far, as a program must see to; what comes later is not.
      const StreamOrder::Event before = *order_->Record(ids[used.stream]);
      order_->Wait(before);
      order_->Release(before);
      Write(handles[stream], used.block, used.size);
      EXPECT_TRUE(allocator_->RecordUse(used.block, ids[stream]));
    }
    allocator_->Free(used.block, used.size);
    used = live.back();
    live.pop_back();
    if (step % 100 == 0) allocator_->ReleaseCached(8_MiB);
  }
  EXPECT_LE(allocator_->stats().peak_held, 96_MiB);
  for (const Live& left : live) allocator_->Free(left.block);
  for (CuStream handle : handles) {
    if (handle != nullptr) Library().Call("cuStreamDestroy_v2", handle);
  }
}

TEST_F(CudaAllocatorTest, AfterOutOfMemoryTheDeviceAndTheAllocatorGoOn) {
  const Bytes half = RoundUp(memory_->capacity() / 2, 2_MiB) + 2_MiB;
  if (!Library().is_double()) GTEST_SKIP() << "others may use the GPU's memory";
  void* first = Get(half);
  OutOfMemory details;
  const absl::Status status = allocator_->Allocate(half, &details).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(details.device_exhausted);
  void* small = Get(3_MiB);
  Write(nullptr, small, 3_MiB);
  Library().Call("cuCtxSynchronize");  // no error was left behind
  allocator_->Free(first);
  first = Get(half);
  allocator_->Free(first);
  allocator_->Free(small);
}

// Hazard: an error that stays is taken for a lack of memory, and everything is evicted in vain.
TEST_F(CudaAllocatorTest, ADeviceThatFailedIsNotOutOfMemory) {
  if (!Library().is_double()) GTEST_SKIP() << "needs the double";
  void* block = Get(3_MiB);
  int calls = 0;
  allocator_->SetPressureHandler([&](const MemoryPressure&) { return ++calls, false; });
  Library().Set("fail", "cuMemCreate:1+=700");
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = allocator_->Allocate(40_MiB).status();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(allocator_->stats().failures, 3);
  Library().Set("fail", "");
  allocator_->Free(Get(40_MiB));
  allocator_->Free(block);
}

// Hazard: memory is unmapped after waiting for the current device instead of its own.
TEST_F(CudaAllocatorTest, TrimmingADeviceWhileAnotherIsCurrentWaitsForTheRightOne) {
  int devices = 0;
  Library().Call("cuDeviceGetCount", &devices);
  if (devices < 2) GTEST_SKIP() << "needs two devices";
  CuContext second = nullptr;
  Library().Call("cuDevicePrimaryCtxRetain", &second, 1);
  const CuStream stream = CreateStream();
  const StreamId id = *order_->Register(stream);
  {
    auto other_memory = Make({.ordinal = 1});
    auto other_order = *CudaStreamOrder::Create(&Library().driver(), 1);
    CachingAllocator other(other_memory.get(), {.streams = other_order.get()});
    Library().Call("cuCtxSetCurrent", second);
    for (int i = 0; i < 5; ++i) {
      void* block = Get(20_MiB, id);
      void* on_other = other.Allocate(20_MiB).value();
      EXPECT_FALSE(allocator_->Owns(on_other));
      EXPECT_FALSE(other.Owns(block));
      Library().Call("cuCtxSetCurrent", context_);
      Write(stream, block, 20_MiB);
      Library().Call("cuCtxSetCurrent", second);
      Write(nullptr, on_other, 20_MiB);
      allocator_->Free(block);
      EXPECT_GE(allocator_->ReleaseCached(Bytes::Max()), 20_MiB);
      EXPECT_EQ(allocator_->stats().held, 0_B);
      EXPECT_GE(other.stats().held, 20_MiB) << "one device's cache is the other's";
      EXPECT_EQ(Current(), second) << "the caller's device was changed";
      other.Free(on_other);
      EXPECT_GE(other.ReleaseCached(Bytes::Max()), 20_MiB);
    }
    Library().Call("cuCtxSetCurrent", context_);
  }
  Library().Call("cuDevicePrimaryCtxRelease_v2", 1);
  Library().Call("cuStreamDestroy_v2", stream);
}

// Hazard: threads' default streams have one handle, and are taken for one stream.
TEST_F(CudaAllocatorTest, ThreadsDefaultStreamsAreStreamsOfTheirOwn) {
  const auto per_thread = reinterpret_cast<CuStream>(kCuStreamPerThread);
  std::latch begun(2), ended(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      Library().Call("cuCtxSetCurrent", context_);
      const StreamId id = *order_->Register(per_thread);
      begun.arrive_and_wait();
      for (int i = 0; i < 200; ++i) {
        const Bytes size(1 + i % 7 * 900'000);
        void* block = Get(size, id);
        Write(per_thread, block, size);
        allocator_->Free(block);
      }
      ended.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator_->stats().arenas, 3) << "the shared default stream's and one for each";
}

// Hazard: the driver gives a destroyed stream's handle again, and the new stream gets memory that
// the old one's work still uses.
TEST_F(CudaAllocatorTest, AStreamWithADestroyedOnesHandleIsAnother) {
  for (int i = 0; i < 20; ++i) {
    const CuStream old_stream = CreateStream();
    const StreamId old_id = *order_->Register(old_stream);
    void* block = Get(3_MiB, old_id);
    Write(old_stream, block, 3_MiB);
    allocator_->Free(block);
    order_->Forget(old_id);
    Library().Call("cuStreamDestroy_v2", old_stream);
    const CuStream stream = CreateStream();
    const StreamId id = *order_->Register(stream);
    EXPECT_NE(id, old_id);
    void* fresh = Get(3_MiB, id);
    Write(stream, fresh, 3_MiB);
    allocator_->Free(fresh);
    order_->Forget(id);
    Library().Call("cuStreamDestroy_v2", stream);
  }
  EXPECT_LE(allocator_->stats().held, 24_MiB) << "destroyed streams keep their memory";
}

// Hazard: an allocator that asks or waits during a capture destroys it.
TEST_F(CudaAllocatorTest, ACaptureSurvivesAllAllocatorCallsAndItsPoolIsStable) {
  const CuStream stream = CreateStream();
  const StreamId id = *order_->Register(stream);
  const PoolId pool = allocator_->CreatePool();
  void* warm = Get(8_MiB, id, pool);
  allocator_->Free(warm);
  Library().Call("cuStreamBeginCapture_v2", stream, 0);
  std::vector<void*> addresses;
  for (int i = 0; i < 3; ++i) {
    void* block = Get(8_MiB, id, pool);
    Write(stream, block, 8_MiB);
    allocator_->Free(block);
    addresses.push_back(block);
    allocator_->Free(Get(5_MiB));
    allocator_->Settle();
    (void)allocator_->stats();
    (void)allocator_->TakeSnapshot();
    EXPECT_FALSE(allocator_->RecordUse(&addresses, id));
  }
  for (void* address : addresses) EXPECT_EQ(address, warm) << "a captured address moved";
  void* graph = nullptr;
  Library().Call("cuStreamEndCapture", stream, &graph);
  ASSERT_NE(graph, nullptr) << "the capture was destroyed";
  // As long as the pool is held, nobody else gets what the graph writes to.
  for (int i = 0; i < 4; ++i) EXPECT_NE(Get(8_MiB), warm);
  allocator_->ReleaseCached(Bytes::Max());
  EXPECT_EQ(Get(8_MiB, id, pool), warm);
  allocator_->Free(warm);
  Library().Call("cuGraphDestroy", graph);
  EXPECT_TRUE(allocator_->DestroyPool(pool).ok());
  Library().Call("cuStreamDestroy_v2", stream);
}

// Hazard: a block that a captured stream uses is never handed out again, and memory grows with each
// capture; or it is handed out before the other stream has joined.
TEST_F(CudaAllocatorTest, WhatACapturedStreamUsesWaitsForTheEndOfTheCaptureAndNoLonger) {
  const CuStream streams[] = {CreateStream(), CreateStream(), CreateStream()};
  for (int round = 0; round < 10; ++round) {
    for (CuStream stream : streams) {
      const StreamId id = *order_->Register(stream);
      void* block = Get(6_MiB);
      Library().Call("cuStreamBeginCapture_v2", stream, 0);
      EXPECT_TRUE(allocator_->RecordUse(static_cast<char*>(block) + 100, id));
      allocator_->Free(block);
      allocator_->Settle();
      EXPECT_EQ(allocator_->stats().awaiting, 6_MiB);
      void* other = Get(6_MiB);
      EXPECT_NE(other, block) << "handed out while a captured stream uses it";
      allocator_->Free(other);
      void* graph = nullptr;
      Library().Call("cuStreamEndCapture", stream, &graph);
      ASSERT_NE(graph, nullptr);
      Library().Call("cuGraphDestroy", graph);
      allocator_->Settle();
      Library().Call("cuCtxSynchronize");
      allocator_->Settle();
      EXPECT_EQ(allocator_->stats().awaiting, 0_B);
    }
  }
  EXPECT_LE(allocator_->stats().held, 24_MiB) << "memory grows with each capture";
  for (CuStream stream : streams) Library().Call("cuStreamDestroy_v2", stream);
}

// What is cached serves the child's bookkeeping still; what needs the driver is an error, no crash.
TEST_F(CudaAllocatorTest, AForkedChildGetsAnErrorAndTheParentGoesOn) {
  void* block = Get(3_MiB);
  allocator_->LockForFork();
  const pid_t child = fork();
  allocator_->UnlockAfterFork();
  if (child == 0) {
    alarm(20);
    const absl::Status status = allocator_->Allocate(40_MiB).status();
    allocator_->Free(block);
    _exit(!status.ok() && !absl::IsResourceExhausted(status) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  allocator_->Free(Get(40_MiB));
  allocator_->Free(block);
}

TEST_F(CudaAllocatorTest, ASharedBlockIsThePieceAroundItAndIsNotUsedAgainOnceItIsFreed) {
  MakeAllocator({.exportable = true});
  auto* block = static_cast<char*>(Get(6_MiB));
  const auto first = memory_->ExportPiece(block + 100);
  const auto second = memory_->ExportPiece(block + 100);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->size, second->size);
  EXPECT_EQ(first->offset, second->offset);
  close(first->fd);
  close(second->fd);
  allocator_->Free(block);
  EXPECT_GE(allocator_->ReleaseCached(Bytes::Max()), 6_MiB);
  EXPECT_EQ(memory_->retained(), 0_B);
  EXPECT_FALSE(memory_->ExportPiece(block).ok()) << "it was revoked when it was given back";
}

}  // namespace
}  // namespace ebbtide
