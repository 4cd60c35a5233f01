// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/stream_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "allocator/block_checker.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/simulated_streams.h"
#include "base/check.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

constexpr size_t kSlots = 48;
constexpr size_t kPools = 3;

// How often each kind of step comes, in the order of Step::Kind.
constexpr int kWeights[] = {300, 260, 200, 60, 4, 6, 4, 2, 2, 2, 4, 3};

class Machine {
 public:
  Machine(const ProgramShape& shape, uint64_t seed)
      : device_({.capacity = 256_MiB,
                 .granularity = 2_MiB,
                 .large_piece = shape.large_pieces ? 8_MiB : 2_MiB,
                 .partial_decommit = shape.partial,
                 .move = shape.partial && shape.move}),
        streams_(&device_, {.seed = seed, .spread = 2}),
        allocator_(std::make_unique<CachingAllocator>(
            &device_, CachingAllocator::Options{.budget = 128_MiB, .streams = &streams_})),
        checker_(std::make_unique<BlockChecker>(&device_, &streams_)),
        slots_(kSlots) {
    stream_ids_.push_back(kDefaultStream);
    while (static_cast<int>(stream_ids_.size()) < shape.streams) {
      stream_ids_.push_back(streams_.CreateStream());
    }
    pools_.assign(kPools, kSharedPool);
    for (size_t i = 1; i < kPools; ++i) pools_[i] = allocator_->CreatePool();
  }

  ~Machine() {
    device_.FailAt(0);  // a device that refuses to take back is a leak, whoever is right
    for (Slot& slot : slots_) Free(&slot);
    Check();
    checker_.reset();
    allocator_->SetPressureHandler(nullptr);
    streams_.CompleteAll();
    allocator_.reset();
  }

  void Run(const Step& step) {
    Slot& slot = slots_[step.slot % kSlots];
    const StreamId stream = stream_ids_[step.stream % stream_ids_.size()];
    PoolId& pool = pools_[step.slot % kPools];
    switch (step.kind) {
      case Step::kAllocate:
        return Allocate(&slot, stream, pool, Bytes(static_cast<int64_t>(step.amount)));
      case Step::kFree:
        return Free(&slot);
      case Step::kUse:
        return Use(slot, stream, Nanos(static_cast<int64_t>(step.amount % 1000 + 1)));
      case Step::kCompleteSome:
        streams_.CompleteSome();
        return;
      case Step::kCompleteAll:
        return streams_.CompleteAll();
      case Step::kSetBudget:
        return allocator_->set_budget(Bytes(static_cast<int64_t>(step.amount % (160 << 20))));
      case Step::kReleaseCached:
        allocator_->ReleaseCached(Bytes(static_cast<int64_t>(step.amount % (64 << 20))));
        return;
      case Step::kReplaceStream:
        return ReplaceStream(&stream_ids_[step.stream % stream_ids_.size()]);
      case Step::kReplacePool:
        if (pool == kSharedPool) return;
        EBB_CHECK(allocator_->DestroyPool(pool).ok());
        EBB_CHECK(!allocator_->Allocate(1_MiB, {.pool = pool}).ok()) << "a destroyed pool serves";
        pool = allocator_->CreatePool();
        return;
      case Step::kTrimPool:
        EBB_CHECK(allocator_->TrimPool(pool).ok());
        return;
      case Step::kFailDevice:
        return device_.FailAt(static_cast<int64_t>(step.amount % 8 + 1));
      case Step::kSetHandler:
        return SetHandler(static_cast<int>(step.amount % 3));
      case Step::kUseUntold:
        if (slot.block != nullptr) streams_.Queue(stream, Nanos(1000), {{slot.block, slot.size}});
        return;
    }
  }

  // The allocator's books against ours.
  void Check() const {
    allocator_->CheckInvariants();
    const AllocatorStats stats = allocator_->stats();
    int64_t asked = 0;
    int64_t blocks = 0;
    for (const Slot& slot : slots_) {
      if (slot.block == nullptr) continue;
      asked += slot.size.count();
      ++blocks;
    }
    EBB_CHECK(stats.asked == Bytes(asked)) << stats.asked.count() << " counted, asked " << asked;
    EBB_CHECK(stats.live_blocks == blocks) << stats.live_blocks << " counted, live " << blocks;
    EBB_CHECK(stats.live == stats.asked + stats.rounding && stats.rounding >= 0_B);
    EBB_CHECK(stats.held == stats.live + stats.awaiting + stats.cached && stats.cached >= 0_B)
        << stats.held.count() << " held, " << stats.live.count() << " live, "
        << stats.awaiting.count() << " awaiting";
    EBB_CHECK(stats.held == device_.committed()) << "held is not what the device has given";
    EBB_CHECK(stats.peak_held >= stats.held && stats.peak_live >= stats.live);
    CheckPicture(stats);
  }

 private:
  void CheckPicture(const AllocatorStats& stats) const {
    const Snapshot picture = allocator_->TakeSnapshot();
    const absl::Status valid = ValidateSnapshot(picture);
    EBB_CHECK(valid.ok()) << valid.ToString();
    Bytes held, asked, awaiting;
    for (const SegmentPicture& segment : picture.segments) {
      held += segment.size;
      for (const BlockPicture& block : segment.blocks) {
        if (block.state == BlockState::kActiveAllocated) asked += block.requested;
        if (block.state == BlockState::kActiveAwaitingFree) awaiting += block.size;
      }
    }
    EBB_CHECK(held == stats.held && asked == stats.asked && awaiting == stats.awaiting)
        << "the picture shows " << held.count() << " held, " << asked.count() << " asked, "
        << awaiting.count() << " awaiting";
  }

  struct Slot {
    void* block = nullptr;
    Bytes size;
    StreamId stream = kDefaultStream;
  };

  void Allocate(Slot* slot, StreamId stream, PoolId pool, Bytes size) {
    if (slot->block != nullptr) return;
    const Bytes held = allocator_->stats().held;
    const absl::StatusOr<void*> block = allocator_->Allocate(size, {stream, pool});
    const Bytes now = allocator_->stats().held;
    EBB_CHECK(now <= std::max(held, allocator_->budget())) << "grown over the budget";
    if (!block.ok()) {
      EBB_CHECK(absl::IsResourceExhausted(block.status())) << block.status().ToString();
      return;
    }
    checker_->CheckHandOut(*block, allocator_->SizeOf(*block), stream);
    *slot = {*block, size, stream};
    const auto info = allocator_->Find(static_cast<char*>(*block) + size.count() - 1);
    EBB_CHECK(info.has_value() && info->begin == *block && info->asked == size &&
              info->stream == stream && info->pool == pool)
        << "a pointer into a block does not find it";
  }

  void Free(Slot* slot) {
    if (slot->block == nullptr) return;
    checker_->CheckTakeBack(slot->block);
    allocator_->Free(slot->block, slot->size);
    slot->block = nullptr;
  }

  void Use(const Slot& slot, StreamId stream, Nanos duration) {
    if (slot.block == nullptr) return;
    streams_.Queue(stream, duration, {{slot.block, slot.size}});
    EBB_CHECK(
        allocator_->RecordUse(static_cast<char*>(slot.block) + slot.size.count() / 2, stream));
  }

  void ReplaceStream(StreamId* stream) {
    if (*stream == kDefaultStream) return;
    streams_.DestroyStream(*stream);
    *stream = streams_.CreateStream();
  }

  void SetHandler(int frees) {
    if (frees == 0) return allocator_->SetPressureHandler(nullptr);
    allocator_->SetPressureHandler([this, frees](const MemoryPressure& pressure) {
      EBB_CHECK(pressure.shortfall > 0_B);
      int freed = 0;
      for (Slot& slot : slots_) {
        if (slot.block == nullptr || freed == frees) continue;
        Free(&slot);
        ++freed;
      }
      // Re-entered: this finds something or fails, and calls no handler.
      Slot extra;
      Allocate(&extra, kDefaultStream, kSharedPool, 100_KiB);
      Free(&extra);
      return freed > 0;
    });
  }

  SimulatedDevice device_;
  SimulatedStreams streams_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unique_ptr<BlockChecker> checker_;
  std::vector<Slot> slots_;
  std::vector<StreamId> stream_ids_;
  std::vector<PoolId> pools_;
};

}  // namespace

std::vector<Step> MakeProgram(uint64_t seed, int steps) {
  std::mt19937_64 random(seed);
  std::discrete_distribution<int> kind(std::begin(kWeights), std::end(kWeights));
  std::uniform_real_distribution<> exponent(std::log(1.0), std::log(40e6));
  std::vector<Step> program;
  for (int i = 0; i < steps; ++i) {
    Step step{static_cast<Step::Kind>(kind(random)), static_cast<uint32_t>(random() % 1000),
              static_cast<uint32_t>(random() % 1000), random()};
    if (step.kind == Step::kAllocate) {
      step.amount = static_cast<uint64_t>(std::exp(exponent(random)));
    }
    program.push_back(step);
  }
  return program;
}

std::string ToText(const std::vector<Step>& program) {
  static constexpr const char* kNames[] = {
      "kAllocate",   "kFree",          "kUse",           "kCompleteSome", "kCompleteAll",
      "kSetBudget",  "kReleaseCached", "kReplaceStream", "kReplacePool",  "kTrimPool",
      "kFailDevice", "kSetHandler",    "kUseUntold"};
  std::string text;
  for (const Step& step : program) {
    absl::StrAppend(&text, "{Step::", kNames[step.kind], ", ", step.slot, ", ", step.stream, ", ",
                    step.amount, "u},\n");
  }
  return text;
}

void RunProgram(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed) {
  Machine machine(shape, seed);
  for (const Step& step : program) {
    machine.Run(step);
    machine.Check();
  }
}

std::string FindFault(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed) {
  int ends[2];
  EBB_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    alarm(60);
    RunProgram(program, shape, seed);
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, n);
  close(ends[0]);
  int status = -1;
  EBB_CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return absl::StrCat(said, "(the child ended with wait status ", status, ")");
}

std::vector<Step> Minimise(std::vector<Step> program, const ProgramShape& shape, uint64_t seed) {
  for (size_t chunk = program.size() / 2; chunk > 0;) {
    bool shorter = false;
    for (size_t at = 0; at < program.size();) {
      std::vector<Step> rest = program;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(at),
                 rest.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, rest.size())));
      if (FindFault(rest, shape, seed).empty()) {
        at += chunk;
      } else {
        program = std::move(rest);
        shorter = true;
      }
    }
    if (!shorter || chunk > program.size()) chunk /= 2;
  }
  return program;
}

}  // namespace ebbtide
