// SPDX-License-Identifier: Apache-2.0
//
// Random programs over several streams, for one allocator on a simulated device: they allocate and
// free in pools, queue work that touches blocks on any stream, let some of it finish in an order
// that the seed chooses, change the budget, destroy streams and pools, and make device calls fail.
// After each step the allocator's books are compared with a shadow count, and a checker that knows
// the queued work stops the program when a block is handed out, or loses its memory, too early.
//
// A program is a plain value: the same for the same seed, and it may be cut down by leaving steps
// out, since each step that has nothing to work on does nothing. RunProgram stops the process where
// it finds a fault; FindFault runs it in a child and gives what was said there.

#ifndef EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_
#define EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ebbtide {

struct Step {
  enum Kind {
    kAllocate,
    kFree,
    kUse,           // queues work on a stream that touches a block
    kCompleteSome,  // some of what is queued finishes, in an order that the seed chooses
    kCompleteAll,
    kSetBudget,
    kReleaseCached,
    kReplaceStream,  // destroys a stream and makes another
    kReplacePool,
    kTrimPool,
    kFailDevice,  // the device call after `amount` more fails
    kSetHandler,  // with amount % 3 == 0 none, else one that frees so many blocks when called
    kUseUntold,   // as kUse, but the allocator is not told: a fault, and in no random program
  };
  Kind kind;
  uint32_t slot;  // which block, stream or pool: modulo how many there are
  uint32_t stream;
  uint64_t amount;  // bytes, duration or count
};

struct ProgramShape {
  bool partial = true;  // the kind of device
  bool move = true;
  bool large_pieces = true;
  int streams = 4;
};

std::vector<Step> MakeProgram(uint64_t seed, int steps);

// As C++ text that can be pasted into a test.
std::string ToText(const std::vector<Step>& program);

void RunProgram(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed);

// Empty when the program runs to its end; else what was written to stderr, and how it ended.
std::string FindFault(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed);

// The program with all steps left out that the fault does not need.
std::vector<Step> Minimise(std::vector<Step> program, const ProgramShape& shape, uint64_t seed);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_
