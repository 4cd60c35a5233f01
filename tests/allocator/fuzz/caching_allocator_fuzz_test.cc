// SPDX-License-Identifier: Apache-2.0
//
// The fuzz target without a fuzzer: every kept input (corpus.txt, a line of hexadecimal digits for
// each) and some thousand random ones. A random program that fails is shortened and printed.
//
//     caching_allocator_fuzz_test --print HEX    prints a program in words
//     caching_allocator_fuzz_test --random N     runs N random programs, beginning at seed 1

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/allocator/fuzz/allocator_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace ebbtide {
namespace {

constexpr char kCorpus[] = "tests/allocator/fuzz/corpus.txt";
int64_t random_programs = 1500;

AllocatorProgram Decode(const std::string& bytes) {
  return DecodeProgram(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string RandomBytes(int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::string bytes(random() % 500, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

AllocatorProgram RandomProgram(int64_t seed) { return Decode(RandomBytes(seed)); }

// Runs `action` in a child process; true when the child lived.
bool Survives(const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    action();
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CachingAllocatorFuzzTest, EveryKeptInputPasses) {
  std::ifstream file(kCorpus);
  ASSERT_TRUE(file.is_open()) << kCorpus;
  int inputs = 0;
  for (std::string line; std::getline(file, line); ++inputs) {
    SCOPED_TRACE(inputs + 1);
    const std::string bytes = absl::HexStringToBytes(line);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  EXPECT_GT(inputs, 10);
}

TEST(CachingAllocatorFuzzTest, RandomProgramsPassAndReachEverything) {
  struct Shared {
    int64_t seed;  // of the program that runs
    ProgramCoverage reached;
  };
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  const bool passed = Survives([&] {
    for (shared->seed = 1; shared->seed <= random_programs; ++shared->seed) {
      const ProgramCoverage run = RunProgram(RandomProgram(shared->seed));
      shared->reached.allocations += run.allocations;
      shared->reached.failures += run.failures;
      shared->reached.handler_calls += run.handler_calls;
      shared->reached.reentrant_steps += run.reentrant_steps;
    }
  });
  if (!passed) {
    const AllocatorProgram shortest = ShrinkProgram(
        RandomProgram(shared->seed),
        [](const AllocatorProgram& program) { return !Survives([&] { RunProgram(program); }); });
    FAIL() << "seed " << shared->seed << " fails, also when shortened to\n"
           << FormatProgram(shortest) << "for corpus.txt, once it is mended:\n"
           << absl::BytesToHexString(RandomBytes(shared->seed));
  }
  EXPECT_GT(shared->reached.allocations, 10 * random_programs);
  EXPECT_GT(shared->reached.failures, random_programs);
  EXPECT_GT(shared->reached.handler_calls, random_programs);
  EXPECT_GT(shared->reached.reentrant_steps, random_programs);
  munmap(shared, sizeof(Shared));
}

TEST(AllocatorProgramTest, AFailingProgramIsShortenedToWhatMatters) {
  AllocatorProgram program = RandomProgram(4);
  program.steps.resize(200);
  program.steps[60] = {.kind = Instruction::Kind::kFailNth, .amount = 1234, .flag = true};
  program.steps[150] = {.kind = Instruction::Kind::kAllocate, .amount = 777, .flag = false};
  int asked = 0;
  const AllocatorProgram shortest = ShrinkProgram(program, [&](const AllocatorProgram& each) {
    ++asked;
    bool failing = false;
    for (const Instruction& step : each.steps) {
      if (step.amount == 1234) failing = true;
      if (failing && step.amount == 777) return true;
    }
    return false;
  });
  EXPECT_LT(asked, 300);
  const std::string text = FormatProgram(shortest);
  EXPECT_EQ(text.substr(text.find('\n')), "\nfail device call 1234 and all later\nallocate 777\n");
}

TEST(AllocatorProgramTest, BytesMeanAlwaysTheSame) {
  // granularity 2 MiB in parts, no handler, budget 2^27; allocate, free elsewhere, fail for ever
  const AllocatorProgram program = Decode("\x02\x1b\xff\x0f\x05\x80\x04\x07\x82\x03");
  EXPECT_EQ(FormatProgram(program),
            "device: granularity 2097152, partial decommit; budget 267911168; no handler\n"
            "allocate 48\nfree elsewhere block 7\nfail device call 3 and all later\n");
  EXPECT_TRUE(Decode("").steps.empty());
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string option = argc == 3 ? argv[1] : "";
  if (option == "--print") {
    std::cout << ebbtide::FormatProgram(ebbtide::Decode(absl::HexStringToBytes(argv[2])));
    return 0;
  }
  if (argc > 1 && (option != "--random" || !absl::SimpleAtoi(argv[2], &ebbtide::random_programs))) {
    std::cerr << "usage: " << argv[0] << " [--print HEX | --random N]\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
