// SPDX-License-Identifier: Apache-2.0
//
// What a random program is made of, and the machine that runs it: a caching allocator on a
// simulated device with streams, beside a shadow of what must be live. See stream_program.h, and
// fuzz/decode_program.h for programs out of any bytes.

#ifndef EBBTIDE_TESTS_ALLOCATOR_STREAM_MACHINE_H_
#define EBBTIDE_TESTS_ALLOCATOR_STREAM_MACHINE_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace ebbtide {

struct Step {
  enum Kind {
    kAllocate,
    kFree,
    kFreeElsewhere,  // on another thread
    kUse,            // queues work on a stream that touches a block
    kCompleteSome,   // some of what is queued finishes, in an order that the seed chooses
    kCompleteAll,
    kSetBudget,
    kReleaseCached,
    kReplaceStream,  // destroys a stream and makes another
    kReplacePool,
    kTrimPool,
    kFailDevice,   // the device call after `amount` more fails
    kBreakDevice,  // that one and all after it, until
    kMendDevice,
    kRestartPeaks,
    // With amount % 3 == 0 none, else a handler that runs amount / 3 % 4 steps of the program and
    // frees amount % 3 blocks when called.
    kSetHandler,
    kUseUntold,  // as kUse, but the allocator is not told: a fault, and in no random program
  };
  static constexpr int kKinds = kUseUntold + 1;

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
  Bytes granularity = Bytes(2 << 20);
  bool planned = false;  // the allocator plans
};

// What a run did, to show that programs reach what they should.
struct ProgramCoverage {
  int64_t allocations = 0;
  int64_t failures = 0;
  int64_t handler_calls = 0;
  int64_t reentrant_steps = 0;
  int64_t planned = 0;  // of the allocations: at places that were computed ahead

  ProgramCoverage& operator+=(const ProgramCoverage& other);
};

// Stops the process where the allocator breaks one of its promises.
ProgramCoverage RunProgram(const std::vector<Step>& program, const ProgramShape& shape,
                           uint64_t seed);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_STREAM_MACHINE_H_
