// SPDX-License-Identifier: Apache-2.0
//
// Random programs over a BufferSession, and a machine that runs one managed and unmanaged in
// lockstep and compares every byte that the program looks at.
//
// A program is a list of steps over numbered slots, each of which holds a buffer or nothing. A step
// whose slots are empty does nothing, so that any steps can be left out of a program and the rest
// is still one: that is how a failing program is made small.
//
// Threads: a Machine belongs to one thread; several may share a session and a SharedSlots.

#ifndef EBBTIDE_TESTS_RUNTIME_RANDOM_PROGRAM_H_
#define EBBTIDE_TESTS_RUNTIME_RANDOM_PROGRAM_H_

#include <cstdint>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <vector>

#include "allocator/caching_allocator.h"
#include "runtime/buffer_session.h"

namespace ebbtide {

// A part of a slot's buffer in 64-bit words; taken modulo the buffer's length.
struct Piece {
  int slot = 0;
  uint32_t from = 0;
  uint32_t words = 0;
};

struct Step {
  enum class Kind { kNew, kCall, kDrop, kRead, kWrite, kEscape, kPoke, kPinned, kReleaseCached };
  struct Output {
    int slot;
    int64_t bytes;
  };

  Kind kind = Kind::kCall;
  uint64_t seed = 0;
  std::vector<Piece> reads = {};
  std::vector<Piece> writes = {};  // kWrite, kPoke: the part that is changed
  std::vector<Output> outputs = {};
  int slot = 0;    // kNew, kDrop, kRead, kEscape, kPinned
  int inside = 0;  // kPinned: so many steps run while the slot is pinned
  bool draws = false;
  bool fails = false;
  bool replayable = true;
};

struct Program {
  uint64_t seed = 0;
  std::vector<Step> steps;
  // The budget as a share of what the program wants at its peak, and one slab more; 0: none.
  double budget_share = 0;
  RuntimeConfig config;
  std::string policy;
  bool real_host_memory = false;
};

constexpr int kOwnSlots = 8;
constexpr int kSharedSlots = 4;

struct GeneratorOptions {
  bool threads = false;  // only what several threads may do at once; uses the shared slots too
};

Program GenerateProgram(uint64_t seed, const GeneratorOptions& options = {});

// Most bytes that the program's buffers have together.
Bytes WantedPeak(const Program& program);

// One line a step, preceded by the settings.
std::string Describe(const Program& program);

// A buffer and the bytes that it must have.
struct Slot {
  Buffer buffer;
  std::vector<uint64_t> expected;
  uint64_t* escaped = nullptr;  // the buffer's address once it is known outside
  uint64_t id = 0;              // of the buffer
};

struct SharedSlots {
  std::shared_mutex mutex;
  Slot slots[kSharedSlots];
};

class Machine {
 public:
  // `shared` may be null.
  Machine(BufferSession* session, CachingAllocator* allocator, uint64_t random_seed,
          SharedSlots* shared = nullptr);

  // Runs everything; returns what went wrong, if anything. After an operation that the budget did
  // not allow it drops a buffer and goes on.
  std::optional<std::string> Run(const Program& program);
  // Compares what is left, dropping buffers where the budget demands it.
  std::optional<std::string> CompareAll();
  // Fills the shared slots.
  absl::Status FillShared(int64_t bytes);

  // How often the budget did not suffice.
  int exhausted() const { return exhausted_; }

 private:
  void RunRange(const Program& program, size_t begin, size_t end);
  absl::Status RunStep(const Program& program, size_t index);
  absl::Status RunCall(const Step& step);
  absl::Status RunNew(const Step& step);
  absl::Status RunWrite(const Step& step);
  absl::Status RunPoke(const Step& step);
  absl::Status RunEscape(const Step& step);
  absl::Status RunPinned(const Program& program, size_t index);
  absl::Status Compare(const Slot& slot, absl::string_view what);
  Slot* At(int slot);
  bool Filled(const std::vector<Piece>& pieces);
  void DropLargest();
  void Fail(std::string what);

  BufferSession* const session_;
  CachingAllocator* const allocator_;
  SharedSlots* const shared_;
  Slot slots_[kOwnSlots];
  std::mt19937_64 random_;  // the unmanaged run's engine
  size_t step_ = 0;
  int exhausted_ = 0;
  uint64_t buffers_ = 0;
  std::optional<std::string> failure_;
};

// Runs the program in a session of its own, with everything that must hold afterwards.
std::optional<std::string> RunProgram(const Program& program, int* exhausted = nullptr);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_RUNTIME_RANDOM_PROGRAM_H_
