// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/stream_machine.h"

#include <algorithm>
#include <memory>
#include <thread>

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

class Machine {
 public:
  Machine(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed)
      : program_(program),
        device_({.capacity = 256_MiB,
                 .granularity = shape.granularity,
                 .large_piece = shape.large_pieces ? 8_MiB : shape.granularity,
                 .partial_decommit = shape.partial,
                 .move = shape.partial && shape.move}),
        streams_(&device_, {.seed = seed, .spread = 2}),
        allocator_(std::make_unique<CachingAllocator>(
            &device_,
            CachingAllocator::Options{
                .budget = 128_MiB, .streams = &streams_, .planned = shape.planned})),
        checker_(std::make_unique<BlockChecker>(&device_, &streams_)),
        slots_(kSlots) {
    stream_ids_.push_back(kDefaultStream);
    while (static_cast<int>(stream_ids_.size()) < shape.streams) {
      stream_ids_.push_back(streams_.CreateStream());
    }
    pools_.assign(kPools, kSharedPool);
    for (size_t i = 1; i < kPools; ++i) pools_[i] = allocator_->CreatePool();
  }

  ProgramCoverage Run() {
    while (next_ < program_.size()) {
      Run(program_[next_++]);
      Check();
    }
    TearDown();
    return coverage_;
  }

 private:
  struct Slot {
    void* block = nullptr;
    Bytes size;
    StreamId stream = kDefaultStream;
    bool busy = false;  // an allocation for it is under way
  };

  // Whatever the program did, everything can be given back.
  void TearDown() {
    device_.FailAt(0);  // a device that refuses to take back is a leak, whoever is right
    for (Slot& slot : slots_) Free(&slot);
    Check();
    coverage_.planned = allocator_->stats().planned;
    checker_.reset();
    allocator_->SetPressureHandler(nullptr);
    streams_.CompleteAll();
    for (PoolId pool : pools_) {
      if (pool != kSharedPool) EBB_CHECK(allocator_->DestroyPool(pool).ok());
    }
    allocator_->ReleaseCached(Bytes::Max());
    allocator_->CheckInvariants();
    EBB_CHECK(device_.committed() == 0_B) << "not all memory went back";
    EBB_CHECK(allocator_->stats().reserved == 0_B) << "not all addresses went back";
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
      case Step::kFreeElsewhere:
        return std::thread([&] { Free(&slot); }).join();
      case Step::kUse:
        return Use(slot, stream, Nanos(static_cast<int64_t>(step.amount % 1000 + 1)));
      case Step::kCompleteSome:
        streams_.CompleteSome();
        return;
      case Step::kCompleteAll:
        return streams_.CompleteAll();
      case Step::kSetBudget:
        return SetBudget(Bytes(static_cast<int64_t>(step.amount % (160 << 20))));
      case Step::kReleaseCached:
        return ReleaseCached(Bytes(static_cast<int64_t>(step.amount % (64 << 20))));
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
      case Step::kBreakDevice:
        return device_.FailAt(static_cast<int64_t>(step.amount % 8 + 1), /*for_ever=*/true);
      case Step::kMendDevice:
        return device_.FailAt(0);
      case Step::kRestartPeaks:
        return allocator_->ResetPeaks();
      case Step::kSetHandler:
        return SetHandler(static_cast<int>(step.amount % 3), static_cast<int>(step.amount / 3 % 4));
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

  void Allocate(Slot* slot, StreamId stream, PoolId pool, Bytes size) {
    if (slot->block != nullptr || slot->busy) return;
    const Bytes held = allocator_->stats().held;
    if (!in_handler_) highest_budget_ = allocator_->budget();
    slot->busy = true;
    const absl::StatusOr<void*> block = allocator_->Allocate(size, {stream, pool});
    slot->busy = false;
    const Bytes now = allocator_->stats().held;
    EBB_CHECK(now <= std::max(held, highest_budget_)) << "grown over the budget";
    if (!block.ok()) {
      EBB_CHECK(absl::IsResourceExhausted(block.status())) << block.status().ToString();
      ++coverage_.failures;
      return;
    }
    ++coverage_.allocations;
    EBB_CHECK((*block == nullptr) == (size == 0_B)) << size.count();
    if (*block == nullptr) return;
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

  void SetBudget(Bytes budget) {
    allocator_->set_budget(budget);
    highest_budget_ = std::max(highest_budget_, budget);
  }

  void ReleaseCached(Bytes amount) {
    const Bytes before = allocator_->stats().held;
    const Bytes released = allocator_->ReleaseCached(amount);
    EBB_CHECK(allocator_->stats().held == before - released) << released.count() << " released";
  }

  void ReplaceStream(StreamId* stream) {
    if (*stream == kDefaultStream) return;
    streams_.DestroyStream(*stream);
    *stream = streams_.CreateStream();
  }

  void SetHandler(int frees, int steps) {
    if (frees == 0) return allocator_->SetPressureHandler(nullptr);
    allocator_->SetPressureHandler([this, frees, steps](const MemoryPressure& pressure) {
      EBB_CHECK(!in_handler_) << "the handler was called from within itself";
      EBB_CHECK(pressure.shortfall > 0_B);
      in_handler_ = true;
      ++coverage_.handler_calls;
      RunFromWithin(steps);
      int freed = 0;
      for (Slot& slot : slots_) {
        if (slot.block == nullptr || freed == frees) continue;
        Free(&slot);
        ++freed;
      }
      in_handler_ = false;
      return freed > 0;
    });
  }

  // The next steps of the program, up to one that a handler must leave alone: the stream or pool of
  // the request that waits, or the handler itself.
  void RunFromWithin(int steps) {
    for (int i = 0; i < steps && next_ < program_.size(); ++i) {
      const Step& step = program_[next_];
      if (step.kind == Step::kReplaceStream || step.kind == Step::kReplacePool ||
          step.kind == Step::kSetHandler) {
        return;
      }
      ++next_;
      ++coverage_.reentrant_steps;
      Run(step);
    }
  }

  const std::vector<Step>& program_;
  size_t next_ = 0;
  SimulatedDevice device_;
  SimulatedStreams streams_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unique_ptr<BlockChecker> checker_;
  std::vector<Slot> slots_;
  std::vector<StreamId> stream_ids_;
  std::vector<PoolId> pools_;
  bool in_handler_ = false;
  Bytes highest_budget_;  // of those in force while an allocation is under way
  ProgramCoverage coverage_;
};

}  // namespace

ProgramCoverage& ProgramCoverage::operator+=(const ProgramCoverage& other) {
  allocations += other.allocations;
  failures += other.failures;
  handler_calls += other.handler_calls;
  reentrant_steps += other.reentrant_steps;
  planned += other.planned;
  return *this;
}

ProgramCoverage RunProgram(const std::vector<Step>& program, const ProgramShape& shape,
                           uint64_t seed) {
  return Machine(program, shape, seed).Run();
}

}  // namespace ebbtide
