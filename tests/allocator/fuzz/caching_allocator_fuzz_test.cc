// SPDX-License-Identifier: Apache-2.0
//
// The fuzz target without a fuzzer: every kept input (corpus.txt, a line of hexadecimal digits for
// each) and some hundred random ones. A random program that fails is shortened and printed.
//
//     caching_allocator_fuzz_test --print HEX    prints a program as C++ text
//     caching_allocator_fuzz_test --random N     runs N random programs, beginning at seed 1

#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/allocator/fuzz/decode_program.h"
#include "tests/allocator/stream_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace ebbtide {
namespace {

constexpr char kCorpus[] = "tests/allocator/fuzz/corpus.txt";
int64_t random_programs = 400;

FuzzProgram Decode(const std::string& bytes) {
  return DecodeProgram(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string RandomBytes(int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::string bytes(random() % 1000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Runs them all; empty when they pass, else the shortest program that fails like the first that
// does not, and its bytes.
std::string Complaint(const std::vector<std::string>& inputs) {
  const auto count = static_cast<int64_t>(inputs.size());
  const int64_t failing = FirstFailure(count, [&](int64_t i) {
    const std::string& bytes = inputs[static_cast<size_t>(i)];
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  });
  if (failing == count) return "";
  const std::string& bytes = inputs[static_cast<size_t>(failing)];
  const FuzzProgram program = Decode(bytes);
  return "number " + std::to_string(failing) + ": " +
         FindFault(program.steps, program.shape, program.seed) + "\nalso when shortened to\n" +
         ToText(Minimise(program.steps, program.shape, program.seed)) +
         "for corpus.txt, once it is mended:\n" + absl::BytesToHexString(bytes);
}

TEST(CachingAllocatorFuzzTest, EveryKeptInputPasses) {
  std::ifstream file(kCorpus);
  ASSERT_TRUE(file.is_open()) << kCorpus;
  std::vector<std::string> inputs;
  for (std::string line; std::getline(file, line);) inputs.push_back(absl::HexStringToBytes(line));
  EXPECT_GT(inputs.size(), 10u);
  EXPECT_EQ(Complaint(inputs), "");
}

TEST(CachingAllocatorFuzzTest, RandomProgramsPass) {
  std::vector<std::string> inputs;
  for (int64_t seed = 1; seed <= random_programs; ++seed) inputs.push_back(RandomBytes(seed));
  EXPECT_EQ(Complaint(inputs), "");
}

// A decoder that never gets an allocator under pressure would find nothing.
TEST(CachingAllocatorFuzzTest, RandomProgramsReachEverything) {
  constexpr int kPrograms = 100;
  ProgramCoverage reached;
  bool kinds[Step::kKinds] = {};
  for (int seed = 1; seed <= kPrograms; ++seed) {
    const FuzzProgram program = Decode(RandomBytes(seed));
    reached += RunProgram(program.steps, program.shape, program.seed);
    for (const Step& step : program.steps) kinds[step.kind] = true;
  }
  for (int kind = 0; kind < Step::kUseUntold; ++kind) EXPECT_TRUE(kinds[kind]) << kind;
  EXPECT_FALSE(kinds[Step::kUseUntold]);
  EXPECT_GT(reached.allocations, 10 * kPrograms);
  EXPECT_GT(reached.failures, kPrograms);
  EXPECT_GT(reached.handler_calls, kPrograms);
  EXPECT_GT(reached.reentrant_steps, kPrograms);
  EXPECT_GT(reached.planned, kPrograms);
}

TEST(DecodeProgramTest, BytesMeanAlwaysTheSame) {
  // 2 MiB granules, one stream, seed 7; allocate in slot 5, free it, break the device.
  const FuzzProgram program = Decode(std::string("\x00\x07\x00\x05\x15\x80\x14\x05\x39\x03", 10));
  EXPECT_EQ(ToText(program.steps),
            "{Step::kAllocate, 5, 0, 3145728u},\n"
            "{Step::kFree, 5, 0, 0u},\n"
            "{Step::kBreakDevice, 0, 0, 3u},\n");
  EXPECT_EQ(program.seed, 7u);
  EXPECT_EQ(program.shape.streams, 1);
  EXPECT_TRUE(Decode("").steps.empty());
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string option = argc == 3 ? argv[1] : "";
  if (option == "--print") {
    std::cout << ebbtide::ToText(ebbtide::Decode(absl::HexStringToBytes(argv[2])).steps);
    return 0;
  }
  if (argc > 1 && (option != "--random" || !absl::SimpleAtoi(argv[2], &ebbtide::random_programs))) {
    std::cerr << "usage: " << argv[0] << " [--print HEX | --random N]\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
