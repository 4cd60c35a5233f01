// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/random_program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/host_memory.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "tests/runtime/arena_memory.h"

namespace ebbtide {
namespace {

// What the allocator takes at once for blocks of up to 4 KiB.
constexpr Bytes kSlab{64 << 10};

constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;

struct Words {
  uint64_t* at;
  size_t count;
};

Words Cut(const Piece& piece, void* memory, size_t bytes) {
  const size_t words = bytes / sizeof(uint64_t);
  const size_t from = piece.from % words;
  return {static_cast<uint64_t*>(memory) + from, 1 + piece.words % (words - from)};
}

uint64_t Fold(Words words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words.count; ++i) sum += (words.at[i] ^ (i * kPrime)) * (kPrime | 1);
  return sum ^ (sum >> 29);
}

void Change(Words words, uint64_t key) {
  for (size_t i = 0; i < words.count; ++i) {
    words.at[i] = words.at[i] * kPrime + (key ^ i) * 0xD6E8FEB86659FD93;
  }
}

// What every call of a program computes. Aliases between the arguments behave as in any C program.
bool Compute(const Step& step, absl::Span<const Words> reads, absl::Span<const Words> writes,
             absl::Span<const Words> outputs, std::mt19937_64& random) {
  uint64_t key = step.seed;
  if (step.draws) key ^= random();
  for (const Words& words : reads) key = (key ^ Fold(words)) * kPrime;
  for (size_t i = 0; i < writes.size(); ++i) {
    if (step.fails && i > 0) return false;
    Change(writes[i], key);
  }
  if (step.fails) return false;
  for (const Words& words : outputs) {
    key = key * kPrime + 1;
    for (size_t i = 0; i < words.count; ++i) words.at[i] = key ^ (i * 0xA0761D6478BD642F);
  }
  return true;
}

bool Same(const void* memory, const std::vector<uint64_t>& expected) {
  return std::memcmp(memory, expected.data(), expected.size() * sizeof(uint64_t)) == 0;
}

std::vector<uint64_t> Fresh(uint64_t seed, int64_t bytes) {
  std::vector<uint64_t> content(static_cast<size_t>(bytes) / sizeof(uint64_t));
  Change({content.data(), content.size()}, seed);
  return content;
}

}  // namespace

Machine::Machine(BufferSession* session, CachingAllocator* allocator, uint64_t random_seed,
                 SharedSlots* shared)
    : session_(session), allocator_(allocator), shared_(shared), random_(random_seed) {}

Slot* Machine::At(int slot) {
  if (slot < kOwnSlots) return &slots_[slot];
  return shared_ == nullptr ? nullptr : &shared_->slots[slot - kOwnSlots];
}

bool Machine::Filled(const std::vector<Piece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [this](const Piece& piece) {
    const Slot* slot = At(piece.slot);
    return slot != nullptr && slot->buffer;
  });
}

void Machine::Fail(std::string what) {
  if (!failure_) failure_ = absl::StrCat("step ", step_, ": ", what);
}

void Machine::DropLargest() {
  Slot* largest = &slots_[0];
  for (Slot& slot : slots_) {
    if (slot.expected.size() > largest->expected.size()) largest = &slot;
  }
  *largest = {};
}

absl::Status Machine::Compare(const Slot& slot, absl::string_view what) {
  return session_->Read(slot.buffer, [&](const void* memory) {
    if (!Same(memory, slot.expected)) Fail(absl::StrCat(what, ": other bytes"));
  });
}

absl::Status Machine::RunNew(const Step& step) {
  Slot& slot = slots_[step.slot];
  slot = {};
  EBB_ASSIGN_OR_RETURN(Buffer buffer, session_->NewBuffer(Bytes(step.outputs[0].bytes)));
  std::vector<uint64_t> content = Fresh(step.seed, step.outputs[0].bytes);
  EBB_RETURN_IF_ERROR(session_->Write(buffer, [&](void* memory) {
    std::memcpy(memory, content.data(), content.size() * sizeof(uint64_t));
  }));
  slot = {std::move(buffer), std::move(content), nullptr, ++buffers_};
  return absl::OkStatus();
}

absl::Status Machine::RunCall(const Step& step) {
  if (!Filled(step.reads) || !Filled(step.writes)) return absl::OkStatus();
  BufferOperation operation{.name = absl::StrCat("step", step_), .replayable = step.replayable};
  std::vector<size_t> sizes;
  for (const Piece& piece : step.reads) operation.reads.push_back(At(piece.slot)->buffer);
  for (const Piece& piece : step.writes) operation.writes.push_back(At(piece.slot)->buffer);
  for (const Step::Output& output : step.outputs) operation.outputs.push_back(Bytes(output.bytes));
  for (const Buffer& b : operation.reads) sizes.push_back(static_cast<size_t>(b.bytes().count()));
  for (const Buffer& b : operation.writes) sizes.push_back(static_cast<size_t>(b.bytes().count()));
  operation.kernel = [step, sizes](const KernelArguments& a) {
    std::vector<Words> reads, writes, outputs;
    for (size_t i = 0; i < step.reads.size(); ++i) {
      reads.push_back(Cut(step.reads[i], const_cast<void*>(a.reads[i]), sizes[i]));
    }
    for (size_t i = 0; i < step.writes.size(); ++i) {
      writes.push_back(Cut(step.writes[i], a.writes[i], sizes[step.reads.size() + i]));
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const size_t words = static_cast<size_t>(step.outputs[i].bytes) / sizeof(uint64_t);
      outputs.push_back({static_cast<uint64_t*>(a.outputs[i]), words});
    }
    const bool done = Compute(step, reads, writes, outputs, a.random);
    return done ? absl::OkStatus() : absl::AbortedError("the kernel failed");
  };
  absl::StatusOr<std::vector<Buffer>> made = session_->Run(operation);
  if (!made.ok() && !absl::IsAborted(made.status())) return made.status();
  std::vector<Words> reads, writes, outputs;
  std::vector<std::vector<uint64_t>> results;
  for (const Step::Output& output : step.outputs) results.push_back(Fresh(0, output.bytes));
  const auto cut = [this](const Piece& piece) {
    std::vector<uint64_t>& content = At(piece.slot)->expected;
    return Cut(piece, content.data(), content.size() * sizeof(uint64_t));
  };
  for (const Piece& piece : step.reads) reads.push_back(cut(piece));
  for (const Piece& piece : step.writes) writes.push_back(cut(piece));
  for (auto& result : results) outputs.push_back({result.data(), result.size()});
  const bool done = Compute(step, reads, writes, outputs, random_);
  if (done != made.ok()) Fail("one of the two runs failed");
  if (!made.ok()) return absl::OkStatus();
  operation = {};
  for (size_t i = 0; i < results.size(); ++i) {
    slots_[step.outputs[i].slot] = {(*made)[i], std::move(results[i]), nullptr, ++buffers_};
  }
  return absl::OkStatus();
}

absl::Status Machine::RunWrite(const Step& step) {
  const Piece& piece = step.writes[0];
  Slot* slot = At(piece.slot);
  if (slot == nullptr || !slot->buffer) return absl::OkStatus();
  const size_t bytes = slot->expected.size() * sizeof(uint64_t);
  EBB_RETURN_IF_ERROR(session_->Write(
      slot->buffer, [&](void* memory) { Change(Cut(piece, memory, bytes), step.seed); }));
  Change(Cut(piece, slot->expected.data(), bytes), step.seed);
  return absl::OkStatus();
}

absl::Status Machine::RunEscape(const Step& step) {
  Slot& slot = slots_[step.slot];
  if (!slot.buffer) return absl::OkStatus();
  EBB_ASSIGN_OR_RETURN(void* address, session_->Escape(slot.buffer));
  slot.escaped = static_cast<uint64_t*>(address);
  return absl::OkStatus();
}

absl::Status Machine::RunPoke(const Step& step) {
  const Piece& piece = step.writes[0];
  Slot& slot = slots_[piece.slot % kOwnSlots];
  if (slot.escaped == nullptr) return absl::OkStatus();
  const size_t bytes = slot.expected.size() * sizeof(uint64_t);
  allocator_->ReleaseCached(Bytes::Max());
  if (!Same(slot.escaped, slot.expected)) Fail("an escaped address reads other bytes");
  Change(Cut(piece, slot.escaped, bytes), step.seed);
  Change(Cut(piece, slot.expected.data(), bytes), step.seed);
  return absl::OkStatus();
}

absl::Status Machine::RunPinned(const Program& program, size_t index) {
  const Step& step = program.steps[index];
  Slot& slot = slots_[step.slot];
  const size_t end = std::min(program.steps.size(), index + 1 + static_cast<size_t>(step.inside));
  if (!slot.buffer) return absl::OkStatus();
  const uint64_t id = slot.id;
  const Buffer pinned = slot.buffer;
  return session_->Read(pinned, [&](const void* memory) {
    if (!Same(memory, slot.expected)) Fail("pinned: other bytes");
    RunRange(program, index + 1, end);
    allocator_->ReleaseCached(Bytes::Max());  // overwrites what was freed by mistake
    if (slot.id == id && !Same(memory, slot.expected)) Fail("pinned: other bytes afterwards");
  });
}

absl::Status Machine::RunStep(const Program& program, size_t index) {
  const Step& step = program.steps[index];
  std::shared_lock<std::shared_mutex> reading;
  std::unique_lock<std::shared_mutex> writing;
  if (shared_ != nullptr) {
    const auto is_shared = [](const Piece& piece) { return piece.slot >= kOwnSlots; };
    if (std::any_of(step.writes.begin(), step.writes.end(), is_shared)) {
      writing = std::unique_lock(shared_->mutex);
    } else if (std::any_of(step.reads.begin(), step.reads.end(), is_shared)) {
      reading = std::shared_lock(shared_->mutex);
    }
  }
  switch (step.kind) {
    case Step::Kind::kNew:
      return RunNew(step);
    case Step::Kind::kCall:
      return RunCall(step);
    case Step::Kind::kDrop:
      slots_[step.slot] = {};
      return absl::OkStatus();
    case Step::Kind::kRead:
      return slots_[step.slot].buffer ? Compare(slots_[step.slot], "read") : absl::OkStatus();
    case Step::Kind::kWrite:
      return RunWrite(step);
    case Step::Kind::kEscape:
      return RunEscape(step);
    case Step::Kind::kPoke:
      return RunPoke(step);
    case Step::Kind::kPinned:
      return RunPinned(program, index);
    case Step::Kind::kReleaseCached:
      allocator_->ReleaseCached(Bytes::Max());
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void Machine::RunRange(const Program& program, size_t begin, size_t end) {
  for (size_t i = begin; i < end && !failure_; ++i) {
    step_ = i;
    const absl::Status status = RunStep(program, i);
    if (absl::IsResourceExhausted(status)) {
      ++exhausted_;
      DropLargest();
    } else if (!status.ok()) {
      Fail(status.ToString());
    }
    if (program.steps[i].kind == Step::Kind::kPinned) {
      i = std::min(end, i + 1 + static_cast<size_t>(program.steps[i].inside)) - 1;
    }
    const AllocatorStats stats = allocator_->stats();
    if (stats.peak_held > stats.budget) Fail("more is held than the budget allows");
  }
}

std::optional<std::string> Machine::Run(const Program& program) {
  RunRange(program, 0, program.steps.size());
  step_ = program.steps.size();
  return failure_;
}

std::optional<std::string> Machine::CompareAll() {
  for (Slot& slot : slots_) {
    if (!slot.buffer || failure_) continue;
    absl::Status status = Compare(slot, absl::StrCat("at the end, slot ", &slot - slots_));
    if (absl::IsResourceExhausted(status)) {
      ++exhausted_;
    } else if (!status.ok()) {
      Fail(status.ToString());
    }
    slot = {};
  }
  return failure_;
}

absl::Status Machine::FillShared(int64_t bytes) {
  for (Slot& slot : shared_->slots) {
    EBB_ASSIGN_OR_RETURN(slot.buffer, session_->NewBuffer(Bytes(bytes)));
    slot.expected = Fresh(static_cast<uint64_t>(&slot - shared_->slots), bytes);
    EBB_RETURN_IF_ERROR(session_->Write(slot.buffer, [&](void* memory) {
      std::memcpy(memory, slot.expected.data(), static_cast<size_t>(bytes));
    }));
  }
  return absl::OkStatus();
}

Bytes WantedPeak(const Program& program) {
  int64_t sizes[kOwnSlots] = {};
  int64_t peak = 0;
  for (const Step& step : program.steps) {
    int64_t live = 0;
    for (int64_t size : sizes) live += size;
    for (const Step::Output& output : step.outputs) live += output.bytes;
    peak = std::max(peak, live);
    for (const Step::Output& output : step.outputs) sizes[output.slot] = output.bytes;
    if (step.kind == Step::Kind::kDrop) sizes[step.slot] = 0;
  }
  return Bytes(peak);
}

std::optional<std::string> RunProgram(const Program& program, int* exhausted) {
  ArenaMemory arena;
  HostMemory host;
  DeviceMemory* device = &arena;
  if (program.real_host_memory) device = &host;
  CachingAllocator::Options options;
  if (program.budget_share > 0) {
    const double bytes = static_cast<double>(WantedPeak(program).count()) * program.budget_share;
    options.budget = RoundUp(Bytes(static_cast<int64_t>(bytes)) + kSlab, device->granularity());
  }
  CachingAllocator allocator(device, options);
  auto session = BufferSession::Create(
      &allocator,
      {.runtime = program.config, .policy = program.policy, .random_seed = program.seed});
  EBB_CHECK(session.ok()) << session.status().ToString();
  std::optional<std::string> failure;
  {
    Machine machine(session->get(), &allocator, program.seed);
    failure = machine.Run(program);
    if (!failure) failure = machine.CompareAll();
    if (exhausted != nullptr) *exhausted = machine.exhausted();
    if (!failure && program.budget_share == 0 && machine.exhausted() > 0) {
      failure = "memory ran out without a budget";
    }
  }
  const RuntimeStats stats = (*session)->runtime().stats();
  if (!failure && (stats.live_values > 0 || stats.live_calls > 0)) {
    failure = absl::StrCat(stats.live_values, " values and ", stats.live_calls,
                           " calls outlive the program");
  }
  if (!failure && (stats.source_bytes > Bytes(0) || stats.retained_bytes > Bytes(0) ||
                   stats.candidate_bytes > Bytes(0))) {
    failure = "the sums of bytes are not zero after the program";
  }
  if (!failure && allocator.stats().live > Bytes(0)) failure = "memory outlives the program";
  return failure;
}

}  // namespace ebbtide
