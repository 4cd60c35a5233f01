// SPDX-License-Identifier: Apache-2.0
//
// Any string of bytes as a program for a caching allocator: instructions decoded one after the
// other, run beside a shadow model that knows what must be live, with the allocator's own
// invariants checked as they run. A violation aborts, which is what a fuzzer looks for; the program
// is then printed in words, so that a found case can be read, shortened and kept.
//
// The bytes decide: the kind of device and its granularity, the budget, and then for each step one
// of: allocate; free; free on another thread; change the budget; give cached memory back; let the
// device's Nth next call fail, once or for ever; restart the peaks. When an allocation meets
// pressure, the handler runs the next few steps of the same program from within (a reentrant
// subprogram), then frees something or not.
//
// Threads: a run starts the threads it needs and joins them; two runs are independent. It is
// deterministic: one thing happens at a time. Ownership: a run owns its device and allocator.

#ifndef EBBTIDE_TESTS_ALLOCATOR_FUZZ_ALLOCATOR_PROGRAM_H_
#define EBBTIDE_TESTS_ALLOCATOR_FUZZ_ALLOCATOR_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace ebbtide {

struct Instruction {
  enum class Kind : uint8_t {
    kAllocate,       // amount: bytes
    kFree,           // amount: which of the live blocks
    kFreeElsewhere,  // the same, on another thread
    kSetBudget,      // amount: bytes
    kReleaseCached,  // amount: bytes
    kFailNth,        // amount: the number of the call; for ever when `flag`
    kRestartPeaks,
  };

  Kind kind = Kind::kAllocate;
  uint64_t amount = 0;
  bool flag = false;
};

struct AllocatorProgram {
  Bytes granularity;
  bool partial_decommit = true;
  Bytes budget;
  bool with_handler = true;
  std::vector<Instruction> steps;
};

// Every string of bytes is a program; the empty one has no steps.
AllocatorProgram DecodeProgram(const uint8_t* bytes, size_t size);

// The program in words, a line for each step.
std::string FormatProgram(const AllocatorProgram& program);

// What a run did, to show that the programs reach what they should.
struct ProgramCoverage {
  int64_t allocations = 0;
  int64_t failures = 0;
  int64_t handler_calls = 0;
  int64_t reentrant_steps = 0;
};

// Leaves out steps as long as `fails` says that what remains still does, first many at once. Asks
// it O(n log n) times in good cases, O(n^2) in bad ones. REQUIRES: `program` itself fails.
AllocatorProgram ShrinkProgram(AllocatorProgram program,
                               const std::function<bool(const AllocatorProgram&)>& fails);

// Runs it. Aborts when the allocator breaks one of its promises.
ProgramCoverage RunProgram(const AllocatorProgram& program);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_FUZZ_ALLOCATOR_PROGRAM_H_
