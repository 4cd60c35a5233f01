// SPDX-License-Identifier: Apache-2.0
//
// 10,000 random programs, managed against unmanaged. Each batch runs in a child process, so that a
// crash is a failure like any other: the failing program is made small and printed. One program
// alone: RANDOM_PROGRAM_SEED=n.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "tests/runtime/random_program.h"

namespace ebbtide {
namespace {

constexpr int kBatches = 40;
constexpr uint64_t kProgramsPerBatch = 250;

// True if `body` neither returns false nor crashes in a process of its own, within a minute.
bool RunsInChild(bool quiet, absl::FunctionRef<bool()> body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (quiet) dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    alarm(60);
    const bool good = body();
    std::fflush(nullptr);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool Passes(const Program& program, bool quiet) {
  return RunsInChild(quiet, [&] {
    const std::optional<std::string> failure = RunProgram(program);
    if (failure) std::fprintf(stderr, "%s\n", failure->c_str());
    return !failure;
  });
}

// Leaves out steps, then arguments of steps, as long as it still fails.
Program Shrink(Program program) {
  for (size_t chunk = program.steps.size() / 2 + 1; chunk > 0; chunk /= 2) {
    for (size_t i = 0; i + chunk <= program.steps.size();) {
      Program smaller = program;
      const auto begin = smaller.steps.begin() + static_cast<ptrdiff_t>(i);
      smaller.steps.erase(begin, begin + static_cast<ptrdiff_t>(chunk));
      if (Passes(smaller, true)) {
        ++i;
      } else {
        program = smaller;
      }
    }
  }
  const auto try_without = [&](auto get) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
      for (size_t j = 0; j < get(program.steps[i]).size();) {
        Program smaller = program;
        auto& list = get(smaller.steps[i]);
        list.erase(list.begin() + static_cast<ptrdiff_t>(j));
        if (smaller.steps[i].kind != Step::Kind::kCall || Passes(smaller, true)) {
          ++j;
        } else {
          program = smaller;
        }
      }
    }
  };
  try_without([](Step& step) -> auto& { return step.reads; });
  try_without([](Step& step) -> auto& { return step.writes; });
  try_without([](Step& step) -> auto& { return step.outputs; });
  return program;
}

std::string Report(uint64_t seed) {
  const Program program = Shrink(GenerateProgram(seed));
  std::fprintf(stderr, "--- the smallest program found that fails:\n%s---\n",
               Describe(program).c_str());
  Passes(program, false);
  return "see above; RANDOM_PROGRAM_SEED=" + std::to_string(seed) + " runs this program alone";
}

class RandomProgramTest : public testing::TestWithParam<int> {};

TEST_P(RandomProgramTest, GivesTheBytesOfTheUnmanagedRun) {
  if (std::getenv("RANDOM_PROGRAM_SEED") != nullptr) GTEST_SKIP() << "one seed alone";
  struct Shared {
    uint64_t seed;
    int exhausted_programs;
  };
  void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const shared = static_cast<volatile Shared*>(page);
  const uint64_t begin = static_cast<uint64_t>(GetParam()) * kProgramsPerBatch;
  const bool good = RunsInChild(false, [&] {
    for (uint64_t i = begin; i < begin + kProgramsPerBatch; ++i) {
      shared->seed = i;
      int exhausted = 0;
      if (RunProgram(GenerateProgram(i), &exhausted)) return false;
      if (exhausted > 0) shared->exhausted_programs = shared->exhausted_programs + 1;
    }
    return true;
  });
  EXPECT_TRUE(good) << Report(shared->seed);
  // Otherwise the budgets are too small to test anything else.
  EXPECT_LT(shared->exhausted_programs, static_cast<int>(kProgramsPerBatch * 2 / 3));
  munmap(page, sizeof(Shared));
}

INSTANTIATE_TEST_SUITE_P(Batch, RandomProgramTest, testing::Range(0, kBatches));

TEST(RandomProgramSeedTest, OneSeed) {
  const char* seed = std::getenv("RANDOM_PROGRAM_SEED");
  if (seed == nullptr) GTEST_SKIP() << "RANDOM_PROGRAM_SEED is not set";
  const uint64_t number = std::strtoull(seed, nullptr, 10);
  EXPECT_TRUE(Passes(GenerateProgram(number), false)) << Report(number);
}

}  // namespace
}  // namespace ebbtide
