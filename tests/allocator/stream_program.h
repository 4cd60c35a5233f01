// SPDX-License-Identifier: Apache-2.0
//
// Random programs over several streams, for one allocator on a simulated device: they allocate and
// free in pools, queue work that touches blocks on any stream, let some of it finish in an order
// that the seed chooses, change the budget, destroy streams and pools, and make device calls fail.
// When an allocation meets pressure, the handler runs the next steps of the program from within.
// After each step the allocator's books are compared with a shadow count, and a checker that knows
// the queued work stops the program when a block is handed out, or loses its memory, too early.
//
// A program is a plain value: the same for the same seed, and it may be cut down by leaving steps
// out, since each step that has nothing to work on does nothing. RunProgram (stream_machine.h)
// stops the process where it finds a fault; FindFault runs it in a child and gives what was said
// there.

#ifndef EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_
#define EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/allocator/stream_machine.h"

namespace ebbtide {

std::vector<Step> MakeProgram(uint64_t seed, int steps);

// One that repeats itself, as training does, with now and then another step: a part of
// MakeProgram's kind, most of whose allocations and frees are those of the default stream and the
// shared pool.
std::vector<Step> MakeSteadyProgram(uint64_t seed, int steps);

// As C++ text that can be pasted into a test.
std::string ToText(const std::vector<Step>& program);

// Runs run(0), run(1), ... in one child process. Returns the number of the first that ends it, or
// `count`.
int64_t FirstFailure(int64_t count, const std::function<void(int64_t)>& run);

// Empty when the program runs to its end; else what was written to stderr, and how it ended.
std::string FindFault(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed);

// The program with all steps left out that the fault does not need.
std::vector<Step> Minimise(std::vector<Step> program, const ProgramShape& shape, uint64_t seed);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_STREAM_PROGRAM_H_
