// SPDX-License-Identifier: Apache-2.0
//
// CudaMemory and CudaStreamOrder on a driver library: on the double in every run of the tests, on a
// GPU by tools/gpu-check. What only the double can show is skipped elsewhere.

#include <unistd.h>

#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocator/cuda/cuda_memory.h"
#include "allocator/cuda/cuda_stream_order.h"
#include "tests/allocator/cuda/library_under_test.h"
#include "tests/allocator/device_memory_conformance.h"
#include "tests/allocator/stream_order_conformance.h"

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

INSTANTIATE_TEST_SUITE_P(CudaVirtual, DeviceMemoryTest, testing::Values([] { return Make({}); }));
INSTANTIATE_TEST_SUITE_P(CudaPooled, DeviceMemoryTest,
                         testing::Values([] { return Make({.handle_pool = 64_MiB}); }));
INSTANTIATE_TEST_SUITE_P(CudaExportable, DeviceMemoryTest,
                         testing::Values([] { return Make({.exportable = true}); }));
INSTANTIATE_TEST_SUITE_P(CudaPlain, DeviceMemoryTest,
                         testing::Values([] { return Make({.virtual_memory = false}); }));

// Streams of the device, held by functions of the host that wait on them.
class LibraryWorld : public StreamWorld {
 public:
  using HostFunction = void (*)(void*);

  LibraryWorld() {
    Library().Call("cuDevicePrimaryCtxRetain", &context_, 0);
    Library().Call("cuCtxSetCurrent", context_);
  }
  ~LibraryWorld() override {
    LetGo();
    order_->WaitForAll();
    Library().Call("cuCtxSetCurrent", CuContext{});
    Library().Call("cuDevicePrimaryCtxRelease_v2", 0);
  }
  StreamOrder* order() override { return order_.get(); }
  bool has_queues() const override { return true; }
  StreamId CreateStream() override {
    CuStream stream = nullptr;
    Library().Call("cuStreamCreate", &stream, 1u);
    const StreamId id = *order_->Register(stream);
    handles_[id] = stream;
    return id;
  }
  void DestroyStream(StreamId stream) override {
    order_->Forget(stream);
    Library().Call("cuStreamDestroy_v2", handles_.at(stream));
  }
  void Hold(StreamId stream) override {
    const HostFunction wait = [](void* gate) {
      std::unique_ptr<std::shared_future<void>>(static_cast<std::shared_future<void>*>(gate))
          ->wait();
    };
    void* gate = new std::shared_future<void>(gate_);
    Library().Call("cuLaunchHostFunc", handles_.at(stream), wait, gate);
  }
  void LetGo() override {
    opener_.set_value();
    opener_ = std::promise<void>();
    gate_ = opener_.get_future().share();
  }

 private:
  std::unique_ptr<CudaStreamOrder> order_ = *CudaStreamOrder::Create(&Library().driver(), 0);
  CuContext context_ = nullptr;
  std::map<StreamId, CuStream> handles_ = {{kDefaultStream, nullptr}};
  std::promise<void> opener_;
  std::shared_future<void> gate_ = opener_.get_future().share();
};

// The double runs work when somebody waits for it, and so cannot be made to hold it.
std::vector<MakeWorld> Worlds() {
  if (Library().is_double()) return {};
  return {[] { return std::make_unique<LibraryWorld>(); }};
}

INSTANTIATE_TEST_SUITE_P(CudaStreams, StreamOrderTest, testing::ValuesIn(Worlds()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StreamOrderTest);

// A primary context that is current here, as in a program that uses the CUDA runtime.
class CudaLibraryTest : public testing::Test {
 protected:
  CudaLibraryTest() {
    Library().Reset();
    Library().Call("cuInit", 0u);
    Library().Call("cuDevicePrimaryCtxRetain", &context_, 0);
    Library().Call("cuCtxSetCurrent", context_);
  }
  ~CudaLibraryTest() override {
    Library().Call("cuCtxSetCurrent", CuContext{});
    Library().Call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  static CuContext Current() {
    CuContext current = nullptr;
    Library().Call("cuCtxGetCurrent", &current);
    return current;
  }
  static CuStream CreateStream() {
    CuStream stream = nullptr;
    Library().Call("cuStreamCreate", &stream, 1u);  // one that does not wait for the default stream
    return stream;
  }
  static CuDevicePtr Number(const char* address) { return reinterpret_cast<CuDevicePtr>(address); }
  // Writes to the device and reads back.
  static void ExpectWorks(char* address, int64_t size) {
    std::string written(size, 'x');
    for (int64_t i = 0; i < size; i += 997) written[i] = static_cast<char>(i % 251);
    std::string read(size, ' ');
    Library().Call("cuMemcpyHtoD_v2", Number(address), static_cast<const void*>(written.data()),
                   static_cast<size_t>(size));
    Library().Call("cuMemcpyDtoH_v2", static_cast<void*>(read.data()), Number(address),
                   static_cast<size_t>(size));
    EXPECT_TRUE(written == read);
  }

  CuContext context_ = nullptr;
};

TEST_F(CudaLibraryTest, MemoryHoldsBytesAcrossPieces) {
  auto memory = Make({.handle_pool = 8_MiB});
  const int64_t g = memory->granularity().count();
  char* a = static_cast<char*>(*memory->Reserve(Bytes(8 * g)));
  ASSERT_TRUE(memory->Commit(a, Bytes(4 * g)).ok());
  ASSERT_TRUE(memory->Commit(a + 4 * g, Bytes(4 * g), Bytes(2 * g)).ok());
  ExpectWorks(a, 8 * g);
  ASSERT_TRUE(memory->Decommit(a + 2 * g, Bytes(4 * g)).ok());
  ASSERT_TRUE(memory->Move(a + 6 * g, a + 2 * g, Bytes(2 * g)).ok());
  ExpectWorks(a, 4 * g);
  EXPECT_TRUE(memory->Unreserve(a, Bytes(8 * g)).ok());
  EXPECT_EQ(Current(), context_);
}

TEST_F(CudaLibraryTest, PlainMemoryHoldsBytes) {
  auto memory = Make({.virtual_memory = false});
  char* a = static_cast<char*>(*memory->Reserve(6_MiB));
  ExpectWorks(a, (6_MiB).count());
  EXPECT_TRUE(memory->Unreserve(a, 6_MiB).ok());
  EXPECT_EQ(Current(), context_);
}

TEST_F(CudaLibraryTest, ADeviceThatIsFullSaysSoAndGoesOn) {
  auto memory = Make({});
  const Bytes piece = RoundUp(memory->capacity() / 16, memory->granularity());
  char* a = static_cast<char*>(*memory->Reserve(piece * 20));
  absl::Status status;
  int64_t pieces = 0;
  for (; status.ok() && pieces < 20; ++pieces) {
    status = memory->Commit(a + (piece * pieces).count(), piece, piece);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << status;
  ASSERT_TRUE(memory->Decommit(a, piece).ok());
  EXPECT_TRUE(memory->Commit(a, piece, piece).ok());
  EXPECT_TRUE(memory->Unreserve(a, piece * 20).ok());
}

TEST_F(CudaLibraryTest, AnExportedPieceCanBeImported) {
  auto memory = Make({.exportable = true});
  const Bytes g = memory->granularity();
  char* a = static_cast<char*>(*memory->Reserve(g * 4));
  ASSERT_TRUE(memory->Commit(a, g * 4, g * 2).ok());
  const auto exported = memory->ExportPiece(a + (g * 3).count());
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->size, g * 2);
  EXPECT_EQ(exported->offset, g);
  CuMemHandle handle = 0;
  Library().Call("cuMemImportFromShareableHandle", &handle,
                 reinterpret_cast<void*>(static_cast<intptr_t>(exported->fd)),
                 kCuMemHandleTypePosixFileDescriptor);
  Library().Call("cuMemRelease", handle);
  close(exported->fd);
  EXPECT_TRUE(memory->Unreserve(a, g * 4).ok());
}

TEST_F(CudaLibraryTest, PeersMayUseTheMemory) {
  int devices = 0;
  Library().Call("cuDeviceGetCount", &devices);
  if (devices < 2) GTEST_SKIP() << "needs two devices";
  auto memory = Make({});
  const Bytes g = memory->granularity();
  char* a = static_cast<char*>(*memory->Reserve(g * 2));
  ASSERT_TRUE(memory->Commit(a, g).ok());
  const absl::Status status = memory->AddPeer(1);
  if (absl::IsFailedPrecondition(status)) GTEST_SKIP() << status;
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(memory->Commit(a + g.count(), g).ok());
  for (char* address : {a, a + g.count()}) {
    unsigned long long access = 0;
    const CuMemLocation peer = {kCuMemLocationTypeDevice, 1};
    Library().Call("cuMemGetAccess", &access, &peer, Number(address));
    EXPECT_EQ(access, static_cast<unsigned long long>(kCuMemAccessReadWrite));
  }
  EXPECT_TRUE(memory->Unreserve(a, g * 2).ok());
}

TEST_F(CudaLibraryTest, NothingBreaksACapture) {
  auto order = *CudaStreamOrder::Create(&Library().driver(), 0);
  const CuStream stream = CreateStream();
  const CuStream other = CreateStream();
  const StreamId captured = *order->Register(stream);
  const StreamId id = *order->Register(other);
  const StreamOrder::Event before = *order->Record(captured);
  Library().Call("cuStreamBeginCapture_v2", stream, 0);
  for (bool virtual_memory : {true, false}) {
    auto memory = Make({.virtual_memory = virtual_memory});
    char* a = static_cast<char*>(*memory->Reserve(memory->granularity() * 2));
    if (virtual_memory) {
      EXPECT_TRUE(memory->Commit(a, memory->granularity()).ok());
      EXPECT_TRUE(memory->Move(a, a + memory->granularity().count(), memory->granularity()).ok());
    }
    EXPECT_TRUE(memory->Unreserve(a, memory->granularity() * 2).ok());
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(order->Record(captured).status()));
  const StreamOrder::Event event = *order->Record(id);
  order->IsDone(before);
  order->Wait(event);
  EXPECT_TRUE(order->IsDone(event));
  order->WaitForAll();
  order->Release(event);
  order->Release(before);
  void* graph = nullptr;
  Library().Call("cuStreamEndCapture", stream, &graph);
  Library().Call("cuGraphDestroy", graph);
  EXPECT_TRUE(order->Record(captured).ok());
  Library().Call("cuStreamDestroy_v2", stream);
  Library().Call("cuStreamDestroy_v2", other);
}

TEST_F(CudaLibraryTest, StreamsHaveNumbersOfTheirOwn) {
  if (Library().is_double()) Library().Set("reuse_handles", "1");
  auto order = *CudaStreamOrder::Create(&Library().driver(), 0);
  std::vector<StreamId> ids = {kDefaultStream};
  for (int i = 0; i < 5; ++i) {
    const CuStream stream = CreateStream();
    ids.push_back(*order->Register(stream));
    EXPECT_EQ(*order->Register(stream), ids.back());
    EXPECT_TRUE(order->Record(ids.back()).ok());
    order->Forget(ids.back());
    Library().Call("cuStreamDestroy_v2", stream);
    EXPECT_TRUE(absl::IsNotFound(order->Record(ids.back()).status()));
  }
  const auto per_thread = reinterpret_cast<CuStream>(kCuStreamPerThread);
  ids.push_back(*order->Register(per_thread));
  for (int i = 0; i < 2; ++i) {  // one after the other: they may have the same stream
    StreamId id = 0;
    std::thread([&] {
      id = *order->Register(per_thread);
      EXPECT_TRUE(order->Record(id).ok());
    }).join();
    EXPECT_TRUE(absl::IsNotFound(order->Record(id).status()));
    if (i == 0) ids.push_back(id);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]) << i << " " << j;
  }
}

// Fails each call of each function once, as cuda_memory_failure_test does on its own driver; here
// it is the library that counts what is left.
TEST_F(CudaLibraryTest, AFailedCallLeavesNothingBehind) {
  if (!Library().is_double()) GTEST_SKIP() << "needs the double";
  const auto failed_calls = [](const char* name) {
    int64_t failures = 0;
    auto memory = Make({.handle_pool = 4_MiB});
    char* a = nullptr;
    const auto until_ok = [&](const std::function<absl::Status()>& step) {
      for (absl::Status status = step(); !status.ok(); status = step()) {
        ASSERT_LT(++failures, 3) << name << ": " << status;
      }
    };
    until_ok([&] {
      const auto reserved = memory->Reserve(32_MiB);
      if (reserved.ok()) a = static_cast<char*>(*reserved);
      return reserved.status();
    });
    until_ok([&] { return memory->Commit(a, 6_MiB); });
    until_ok([&] { return memory->Commit(a + (16_MiB).count(), 8_MiB, 4_MiB); });
    until_ok([&] { return memory->Decommit(a, 4_MiB); });
    until_ok([&] { return memory->Move(a + (16_MiB).count(), a + (8_MiB).count(), 8_MiB); });
    until_ok([&] { return memory->Commit(a, 4_MiB, 4_MiB); });
    until_ok([&] { return memory->Unreserve(a, 32_MiB); });
    until_ok([&] { return memory->ReleaseRetained(); });
    return failures;
  };
  int64_t failures = 0;
  for (const char* name : {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
                           "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuCtxPushCurrent"}) {
    for (int call = 1; call <= 12; ++call) {
      Library().Set("fail", std::string(name) + ":" + std::to_string(call) + "=719");
      failures += failed_calls(name);
      Library().Set("fail", "");
      struct Counts {
        int64_t committed, peak, handles, references, mappings, reservations;
        int64_t others[32];
      } counts;
      Library().Find<void (*)(Counts*)>("ebbtide_double_count")(&counts);
      for (int64_t count : {counts.committed, counts.handles, counts.references, counts.mappings,
                            counts.reservations}) {
        ASSERT_EQ(count, 0) << name << " call " << call;
      }
    }
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace ebbtide
