// SPDX-License-Identifier: Apache-2.0
//
// What the driver's calls behind CudaMemory cost, and what CudaMemory makes of them. The time shown
// is that of one call. The names, each with the size of a piece in MiB:
//
//     Reserve  Create  Map  SetAccess  Unmap  Release    one call of that name
//     SetAccessAll  UnmapAll          one call over all pieces, shown as time per piece
//     Commit  Decommit  CommitPooled  Move               CudaMemory, per piece
//     Plain                                              cuMemAlloc and cuMemFree
//     RecordAndQuery                                     CudaStreamOrder
//
// The driver is libcuda.so.1, or what the environment variable EBBTIDE_CUDA_DRIVER names. Without a
// driver and a device the exit status is 3.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/cuda/cuda_memory.h"
#include "allocator/cuda/cuda_stream_order.h"
#include "base/check.h"
#include "benchmark/benchmark.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using Clock = std::chrono::steady_clock;

const CudaDriver* g_driver = nullptr;

void Must(const absl::Status& status) { EBB_CHECK(status.ok()) << status.ToString(); }

enum class Call { kReserve, kCreate, kMap, kSetAccess, kSetAccessAll, kUnmap, kUnmapAll, kRelease };

// One life of some pieces, made of the driver's calls; only those asked for are timed.
class Life {
 public:
  Life(const CudaContext& context, Bytes piece, int pieces, Call timed)
      : context_(context), cu_(context.driver().functions()), pieces_(pieces), timed_(timed) {
    size_ = static_cast<size_t>(piece.count());
    properties_.type = kCuMemAllocationTypePinned;
    properties_.location = {kCuMemLocationTypeDevice, context.device()};
    access_ = {properties_.location, kCuMemAccessReadWrite};
  }

  // The seconds of one timed call.
  double Live() {
    seconds_ = 0;
    CuDevicePtr base = 0;
    const size_t all = size_ * pieces_;
    std::vector<CuMemHandle> handles(pieces_);
    Time(Call::kReserve, 1, [&](int) { return cu_.mem_address_reserve(&base, all, 0, 0, 0); });
    Time(Call::kCreate, pieces_,
         [&](int i) { return cu_.mem_create(&handles[i], size_, &properties_, 0); });
    Time(Call::kMap, pieces_,
         [&](int i) { return cu_.mem_map(base + i * size_, size_, 0, handles[i], 0); });
    const bool at_once = timed_ == Call::kSetAccessAll;
    Time(at_once ? timed_ : Call::kSetAccess, at_once ? 1 : pieces_, [&](int i) {
      return cu_.mem_set_access(base + i * size_, at_once ? all : size_, &access_, 1);
    });
    const bool whole = timed_ == Call::kUnmapAll;
    Time(whole ? timed_ : Call::kUnmap, whole ? 1 : pieces_,
         [&](int i) { return cu_.mem_unmap(base + i * size_, whole ? all : size_); });
    Time(Call::kRelease, pieces_, [&](int i) { return cu_.mem_release(handles[i]); });
    Must(context_.driver().Check(cu_.mem_address_free(base, all), "cuMemAddressFree"));
    return seconds_ / (timed_ == Call::kReserve ? 1 : pieces_);
  }

 private:
  template <typename Function>
  void Time(Call call, int times, const Function& function) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < times; ++i) {
      Must(context_.driver().Check(function(i), absl::StrCat("call ", static_cast<int>(call))));
    }
    if (call == timed_) seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }

  const CudaContext& context_;
  const CudaFunctions& cu_;
  size_t size_;
  const int pieces_;
  const Call timed_;
  CuMemAllocationProp properties_ = {};
  CuMemAccessDesc access_ = {};
  double seconds_ = 0;
};

// Enough pieces that the clock does not count, few enough for a small device.
int PieceCount(Bytes piece) { return static_cast<int>(std::clamp<int64_t>(1_GiB / piece, 1, 32)); }

void Driver(benchmark::State& state, Call timed) {
  const auto context = *CudaContext::Retain(g_driver, 0);
  const CudaContext::Scope scope(*context);
  const Bytes piece = 1_MiB * state.range(0);
  Life life(*context, piece, PieceCount(piece), timed);
  life.Live();  // What the driver sets up at the first call is not meant.
  for (auto _ : state) state.SetIterationTime(life.Live());
}

enum class Step { kCommit, kDecommit, kMove };

void Memory(benchmark::State& state, Step timed, bool pooled) {
  const Bytes piece = 1_MiB * state.range(0);
  const int pieces = PieceCount(piece);
  const Bytes all = piece * pieces;
  auto memory = *CudaMemory::Create(g_driver, {.handle_pool = pooled ? all : Bytes(0)});
  void* a = *memory->Reserve(all);
  void* b = *memory->Reserve(all);
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    Must(memory->Commit(a, all, piece));
    const Clock::time_point committed = Clock::now();
    Must(memory->Move(a, b, all));
    const Clock::time_point moved = Clock::now();
    Must(memory->Decommit(b, all));
    const Clock::time_point end = Clock::now();
    const Clock::duration duration = timed == Step::kCommit ? committed - start
                                     : timed == Step::kMove ? moved - committed
                                                            : end - moved;
    state.SetIterationTime(std::chrono::duration<double>(duration).count() / pieces);
  }
  Must(memory->Unreserve(a, all));
  Must(memory->Unreserve(b, all));
}

void Plain(benchmark::State& state) {
  auto memory = *CudaMemory::Create(g_driver, {.virtual_memory = false});
  const Bytes size = 1_MiB * state.range(0);
  for (auto _ : state) Must(memory->Unreserve(*memory->Reserve(size), size));
}

void RecordAndQuery(benchmark::State& state) {
  auto order = *CudaStreamOrder::Create(g_driver, 0);
  for (auto _ : state) {
    const StreamOrder::Event event = *order->Record(kDefaultStream);
    benchmark::DoNotOptimize(order->IsDone(event));
    order->Release(event);
  }
}

// A fixed number of lives: most of a life is not timed, so that time is no measure of the effort.
template <typename Function, typename... Arguments>
void Register(const char* name, int64_t mib, Function function, Arguments... arguments) {
  constexpr int kLives = 20;
  benchmark::RegisterBenchmark(name, function, arguments...)
      ->Arg(mib)
      ->Iterations(kLives)
      ->UseManualTime();
}

void RegisterAll() {
  for (int64_t mib : {2, 20, 64, 512}) {
    Register("Reserve", mib, Driver, Call::kReserve);
    Register("Create", mib, Driver, Call::kCreate);
    Register("Map", mib, Driver, Call::kMap);
    Register("SetAccess", mib, Driver, Call::kSetAccess);
    Register("SetAccessAll", mib, Driver, Call::kSetAccessAll);
    Register("Unmap", mib, Driver, Call::kUnmap);
    Register("UnmapAll", mib, Driver, Call::kUnmapAll);
    Register("Release", mib, Driver, Call::kRelease);
    Register("Commit", mib, Memory, Step::kCommit, false);
    Register("CommitPooled", mib, Memory, Step::kCommit, true);
    Register("Move", mib, Memory, Step::kMove, false);
    Register("Decommit", mib, Memory, Step::kDecommit, false);
    benchmark::RegisterBenchmark("Plain", Plain)->Arg(mib);
  }
  benchmark::RegisterBenchmark("RecordAndQuery", RecordAndQuery);
}

// The device's name and the driver's version, or why there is none.
absl::Status Describe(const CudaDriver& driver) {
  const auto context = CudaContext::Retain(&driver, 0);
  if (!context.ok()) return context.status();
  char name[256] = "";
  int version = 0;
  const CudaFunctions& cu = driver.functions();
  Must(driver.Check(cu.device_get_name(name, sizeof(name), (*context)->device()),
                    "cuDeviceGetName"));
  Must(driver.Check(cu.driver_get_version(&version), "cuDriverGetVersion"));
  benchmark::AddCustomContext("device", name);
  benchmark::AddCustomContext("driver_api", absl::StrCat(version / 1000, ".", version % 1000 / 10));
  return absl::OkStatus();
}

}  // namespace

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const char* library = getenv("EBBTIDE_CUDA_DRIVER");
  const auto driver = CudaDriver::Load(library ? library : CudaDriver::kDefaultLibrary);
  const absl::Status status = driver.ok() ? Describe(*driver) : driver.status();
  if (!status.ok()) {
    fprintf(stderr, "no GPU here: %s\n", status.ToString().c_str());
    return 3;
  }
  g_driver = &*driver;
  RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace ebbtide

int main(int argc, char** argv) { return ebbtide::Main(argc, argv); }
