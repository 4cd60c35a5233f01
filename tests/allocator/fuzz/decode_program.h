// SPDX-License-Identifier: Apache-2.0
//
// Any string of bytes as a program of stream_machine.h: what a fuzzer mutates. The bytes decide the
// kind of device and its granularity, the seed of the streams, and then step after step. A pure
// function: the same bytes are the same program on every machine.

#ifndef EBBTIDE_TESTS_ALLOCATOR_FUZZ_DECODE_PROGRAM_H_
#define EBBTIDE_TESTS_ALLOCATOR_FUZZ_DECODE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/allocator/stream_machine.h"

namespace ebbtide {

struct FuzzProgram {
  ProgramShape shape;
  uint64_t seed = 0;
  std::vector<Step> steps;
};

// The empty string has no steps.
FuzzProgram DecodeProgram(const uint8_t* bytes, size_t size);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_FUZZ_DECODE_PROGRAM_H_
