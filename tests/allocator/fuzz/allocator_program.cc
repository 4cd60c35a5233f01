// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/fuzz/allocator_program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "base/check.h"

namespace ebbtide {
namespace {

using Kind = Instruction::Kind;

constexpr Bytes kCapacity(int64_t{256} << 20);
constexpr size_t kMaxSteps = 4096;  // longer inputs find nothing that shorter ones do not
constexpr int kStepsAWalk = 16;     // a walk over all bookkeeping costs more than all steps
constexpr int kReentrantSteps = 3;  // steps that a handler runs at most

// Reads numbers off the input; behind its end everything is 0.
class ByteReader {
 public:
  ByteReader(const uint8_t* bytes, size_t size) : bytes_(bytes), left_(size) {}
  bool done() const { return left_ == 0; }
  uint64_t Next() {
    if (left_ == 0) return 0;
    --left_;
    return *bytes_++;
  }

  // A size whose order of magnitude one byte decides: so that a mutated byte moves it far or
  // little.
  uint64_t NextSize(int most_bits) {
    const uint64_t bits = Next() % static_cast<uint64_t>(most_bits + 1);
    const uint64_t digits = Next() | 0x100;  // the leading one and eight more
    return bits > 8 ? digits << (bits - 8) : digits >> (8 - bits);
  }

 private:
  const uint8_t* bytes_;
  size_t left_;
};

Instruction DecodeStep(ByteReader* reader) {
  Instruction step;
  const uint64_t opcode = reader->Next();
  switch (opcode % 16) {
    case 0:
      step.kind = Kind::kSetBudget;
      step.amount = reader->NextSize(27);
      return step;
    case 1:
      step.kind = Kind::kReleaseCached;
      step.amount = reader->NextSize(27);
      return step;
    case 2:
      step.kind = Kind::kFailNth;
      step.amount = reader->Next() % 8;
      step.flag = opcode >= 0x80;
      return step;
    case 3:
      step.kind = opcode < 0x20 ? Kind::kRestartPeaks : Kind::kFree;
      break;
    case 4:
      step.kind = Kind::kFreeElsewhere;
      break;
    case 5:
    case 6:
    case 7:
    case 8:
      step.kind = Kind::kFree;
      break;
    default:
      step.kind = Kind::kAllocate;
      step.amount = reader->NextSize(26);
      return step;
  }
  if (step.kind != Kind::kRestartPeaks) step.amount = reader->Next();
  return step;
}

// Everything one run needs. Blocks are known by address, as the shadow's map; their content is
// never touched, as there is none.
class Machine {
 public:
  explicit Machine(const AllocatorProgram& program)
      : program_(program),
        device_({.capacity = kCapacity,
                 .granularity = program.granularity,
                 .partial_decommit = program.partial_decommit}),
        allocator_(std::make_unique<CachingAllocator>(
            &device_, CachingAllocator::Options{.budget = program.budget})),
        largest_budget_(program.budget) {
    if (!program.with_handler) return;
    allocator_->SetPressureHandler(
        [this](const MemoryPressure& pressure) { return OnPressure(pressure); });
  }

  ProgramCoverage Run() {
    for (int i = 1; next_ < program_.steps.size(); ++i) {
      Step();
      CheckNumbers();
      if (i % kStepsAWalk == 0) allocator_->CheckInvariants();
    }
    allocator_->CheckInvariants();
    device_.FailAt(0);
    while (!live_.empty()) Free(0);
    allocator_->SetPressureHandler(nullptr);
    allocator_->ReleaseCached(Bytes::Max());
    allocator_->CheckInvariants();
    CheckNumbers();
    EBB_CHECK(device_.committed() == Bytes(0)) << "not all memory went back";
    EBB_CHECK(allocator_->stats().reserved == Bytes(0)) << "not all addresses went back";
    allocator_.reset();  // the device aborts when anything is left
    return coverage_;
  }

 private:
  void Step() {
    const Instruction& step = program_.steps[next_++];
    switch (step.kind) {
      case Kind::kAllocate:
        Allocate(Bytes(static_cast<int64_t>(step.amount)));
        break;
      case Kind::kFree:
        Free(step.amount);
        break;
      case Kind::kFreeElsewhere:
        std::thread([&] { Free(step.amount); }).join();
        break;
      case Kind::kSetBudget:
        allocator_->set_budget(Bytes(static_cast<int64_t>(step.amount)));
        largest_budget_ = std::max(largest_budget_, allocator_->budget());
        break;
      case Kind::kReleaseCached:
        ReleaseCached(Bytes(static_cast<int64_t>(step.amount)));
        break;
      case Kind::kFailNth:
        device_.FailAt(static_cast<int64_t>(step.amount), step.flag);
        break;
      case Kind::kRestartPeaks:
        allocator_->ResetPeaks();
        break;
    }
  }

  void Allocate(Bytes size) {
    const absl::StatusOr<void*> block = allocator_->Allocate(size);
    if (!block.ok()) {
      EBB_CHECK(absl::IsResourceExhausted(block.status())) << block.status().ToString();
      ++coverage_.failures;
      return;
    }
    EBB_CHECK((*block == nullptr) == (size == Bytes(0))) << size;
    if (*block == nullptr) return;
    ++coverage_.allocations;
    const auto begin = reinterpret_cast<uintptr_t>(*block);
    const Bytes usable = allocator_->SizeOf(*block);
    const uintptr_t end = begin + static_cast<uintptr_t>(usable.count());
    EBB_CHECK(begin % 64 == 0 && usable >= size) << "block of " << usable << " for " << size;
    const auto after = live_.lower_bound(begin);
    EBB_CHECK(after == live_.end() || end <= after->first) << "overlaps the block after it";
    EBB_CHECK(after == live_.begin() || std::prev(after)->second <= begin)
        << "overlaps the block before it";
    live_.emplace(begin, end);
    live_bytes_ += usable;
    EBB_CHECK(allocator_->Owns(*block));
  }

  // Frees one of the live blocks, if there is one.
  void Free(uint64_t which) {
    if (live_.empty()) return;
    const auto place = static_cast<ptrdiff_t>(which % live_.size());
    const auto victim = std::next(live_.begin(), place);
    const uintptr_t begin = victim->first;
    live_bytes_ -= Bytes(static_cast<int64_t>(victim->second - begin));
    live_.erase(victim);  // before: what it leaves may be handed out to somebody at once
    allocator_->Free(reinterpret_cast<void*>(begin));
    EBB_CHECK(!allocator_->Owns(reinterpret_cast<void*>(begin)));
  }

  void ReleaseCached(Bytes amount) {
    const Bytes before = allocator_->stats().held;
    const Bytes released = allocator_->ReleaseCached(amount);
    EBB_CHECK(allocator_->stats().held == before - released) << "released " << released;
  }

  // Runs the next steps of the program from within; then every other call helps.
  bool OnPressure(const MemoryPressure& pressure) {
    EBB_CHECK(!in_handler_) << "the handler was called from within itself";
    EBB_CHECK(pressure.shortfall >= Bytes(1)) << "a shortfall of " << pressure.shortfall;
    in_handler_ = true;
    ++coverage_.handler_calls;
    for (int i = 0; i < kReentrantSteps && next_ < program_.steps.size(); ++i) {
      ++coverage_.reentrant_steps;
      Step();
    }
    const bool helps = coverage_.handler_calls % 2 == 1 && !live_.empty();
    if (helps) Free(pressure.shortfall.count());
    in_handler_ = false;
    return helps;
  }

  void CheckNumbers() {
    const AllocatorStats stats = allocator_->stats();
    EBB_CHECK(stats.live == live_bytes_) << stats.live << ", shadow " << live_bytes_;
    EBB_CHECK(stats.live_blocks == static_cast<int64_t>(live_.size()));
    EBB_CHECK(stats.allocations == coverage_.allocations);
    EBB_CHECK(stats.failures == coverage_.failures);
    EBB_CHECK(stats.held == device_.committed()) << stats.held << " " << device_.committed();
    EBB_CHECK(stats.held == stats.live + stats.cached && stats.cached >= Bytes(0));
    EBB_CHECK(stats.held <= stats.peak_held && stats.live <= stats.peak_live);
    EBB_CHECK(device_.peak_committed() <= largest_budget_) << "the budget was exceeded";
  }

  const AllocatorProgram& program_;
  size_t next_ = 0;
  SimulatedDevice device_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::map<uintptr_t, uintptr_t> live_;  // begin to end
  Bytes live_bytes_;
  Bytes largest_budget_;  // of all that were in force
  bool in_handler_ = false;
  ProgramCoverage coverage_;
};

}  // namespace

AllocatorProgram DecodeProgram(const uint8_t* bytes, size_t size) {
  ByteReader reader(bytes, size);
  AllocatorProgram program;
  const uint64_t shape = reader.Next();
  constexpr int64_t kGranularities[] = {4 << 10, 64 << 10, 2 << 20, 1 << 20};
  program.granularity = Bytes(kGranularities[shape % 4]);
  program.partial_decommit = shape / 4 % 2 == 0;
  program.with_handler = shape / 8 % 4 != 0;
  program.budget = Bytes(static_cast<int64_t>(reader.NextSize(27)));
  while (!reader.done() && program.steps.size() < kMaxSteps) {
    program.steps.push_back(DecodeStep(&reader));
  }
  return program;
}

std::string FormatProgram(const AllocatorProgram& program) {
  std::string text = absl::StrFormat(
      "device: granularity %d, %s; budget %d; %s\n", program.granularity.count(),
      program.partial_decommit ? "partial decommit" : "whole segments", program.budget.count(),
      program.with_handler ? "pressure handler" : "no handler");
  for (const Instruction& step : program.steps) {
    constexpr const char* kWords[] = {"allocate",     "free block",     "free elsewhere block",
                                      "budget",       "release cached", "fail device call",
                                      "restart peaks"};
    text += kWords[static_cast<int>(step.kind)];
    if (step.kind != Kind::kRestartPeaks) absl::StrAppendFormat(&text, " %d", step.amount);
    text += step.flag ? " and all later\n" : "\n";
  }
  return text;
}

AllocatorProgram ShrinkProgram(AllocatorProgram program,
                               const std::function<bool(const AllocatorProgram&)>& fails) {
  for (size_t chunk = std::max<size_t>(program.steps.size() / 2, 1); chunk > 0;) {
    bool shrunk = false;
    for (size_t at = 0; at < program.steps.size();) {
      AllocatorProgram shorter = program;
      const auto begin = shorter.steps.begin() + static_cast<ptrdiff_t>(at);
      const size_t count = std::min(chunk, program.steps.size() - at);
      shorter.steps.erase(begin, begin + static_cast<ptrdiff_t>(count));
      if (fails(shorter)) {
        program = std::move(shorter);
        shrunk = true;
      } else {
        at += count;
      }
    }
    if (chunk > 1 || !shrunk) chunk /= 2;  // single steps until none can go
  }
  return program;
}

ProgramCoverage RunProgram(const AllocatorProgram& program) { return Machine(program).Run(); }

}  // namespace ebbtide
