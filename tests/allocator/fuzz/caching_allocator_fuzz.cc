// SPDX-License-Identifier: Apache-2.0
//
// The entry point that libFuzzer calls with inputs it invents. With clang:
//
//     tests/allocator/fuzz/run.py --seconds 60
//
// To read a program that failed: caching_allocator_fuzz_test --print HEX.

#include "tests/allocator/fuzz/decode_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const ebbtide::FuzzProgram program = ebbtide::DecodeProgram(bytes, size);
  ebbtide::RunProgram(program.steps, program.shape, program.seed);
  return 0;
}
