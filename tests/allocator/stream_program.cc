// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/stream_program.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// How often each kind of step comes, in the order of Step::Kind.
constexpr int kWeights[] = {300, 230, 30, 200, 60, 4, 6, 4, 2, 2, 2, 4, 1, 4, 2, 3};
static_assert(std::size(kWeights) == Step::kUseUntold);

// After which a program counts as hanging.
constexpr unsigned kPatienceSeconds = 120;

}  // namespace

std::vector<Step> MakeProgram(uint64_t seed, int steps) {
  std::mt19937_64 random(seed);
  std::discrete_distribution<int> kind(std::begin(kWeights), std::end(kWeights));
  std::uniform_real_distribution<> exponent(std::log(1.0), std::log(40e6));
  std::vector<Step> program;
  for (int i = 0; i < steps; ++i) {
    Step step{static_cast<Step::Kind>(kind(random)), static_cast<uint32_t>(random() % 1000),
              static_cast<uint32_t>(random() % 1000), random()};
    if (step.kind == Step::kAllocate) {
      step.amount = static_cast<uint64_t>(std::exp(exponent(random)));
    }
    program.push_back(step);
  }
  return program;
}

std::vector<Step> MakeSteadyProgram(uint64_t seed, int steps) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<> exponent(std::log(4200.0), std::log(8e6));
  std::vector<Step> iteration = MakeProgram(random(), 40);
  for (int i = 0; i < 80; ++i) {
    const bool frees = random() % 2 == 0;
    // Slots that belong to the shared pool; the rest of them is the other steps'.
    const auto slot = static_cast<uint32_t>(random() % 10 * 3);
    const auto bytes = static_cast<uint64_t>(std::exp(exponent(random)));
    iteration.insert(iteration.begin() + static_cast<ptrdiff_t>(random() % iteration.size()),
                     {frees ? Step::kFree : Step::kAllocate, slot, 0, bytes});
  }
  const std::vector<Step> others = MakeProgram(random(), steps);
  std::vector<Step> program;
  for (int i = 0; i < steps; ++i) {
    program.push_back(random() % 300 == 0 ? others[i] : iteration[i % iteration.size()]);
  }
  return program;
}

std::string ToText(const std::vector<Step>& program) {
  static constexpr const char* kNames[] = {
      "kAllocate",    "kFree",       "kFreeElsewhere", "kUse",           "kCompleteSome",
      "kCompleteAll", "kSetBudget",  "kReleaseCached", "kReplaceStream", "kReplacePool",
      "kTrimPool",    "kFailDevice", "kBreakDevice",   "kMendDevice",    "kRestartPeaks",
      "kSetHandler",  "kUseUntold"};
  static_assert(std::size(kNames) == Step::kKinds);
  std::string text;
  for (const Step& step : program) {
    absl::StrAppend(&text, "{Step::", kNames[step.kind], ", ", step.slot, ", ", step.stream, ", ",
                    step.amount, "u},\n");
  }
  return text;
}

int64_t FirstFailure(int64_t count, const std::function<void(int64_t)>& run) {
  auto* const at = static_cast<std::atomic<int64_t>*>(
      mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  EBB_CHECK(at != MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    for (int64_t i = 0; i < count; *at = ++i) {
      alarm(kPatienceSeconds);
      run(i);
    }
    _exit(0);
  }
  EBB_CHECK(waitpid(child, nullptr, 0) == child);
  const int64_t reached = *at;
  munmap(at, sizeof(int64_t));
  return reached;
}

std::string FindFault(const std::vector<Step>& program, const ProgramShape& shape, uint64_t seed) {
  int ends[2];
  EBB_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    alarm(kPatienceSeconds);
    RunProgram(program, shape, seed);
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, n);
  close(ends[0]);
  int status = -1;
  EBB_CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return absl::StrCat(said, "(the child ended with wait status ", status, ")");
}

std::vector<Step> Minimise(std::vector<Step> program, const ProgramShape& shape, uint64_t seed) {
  for (size_t chunk = program.size() / 2; chunk > 0;) {
    bool shorter = false;
    for (size_t at = 0; at < program.size();) {
      std::vector<Step> rest = program;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(at),
                 rest.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, rest.size())));
      if (FindFault(rest, shape, seed).empty()) {
        at += chunk;
      } else {
        program = std::move(rest);
        shorter = true;
      }
    }
    if (!shorter || chunk > program.size()) chunk /= 2;
  }
  return program;
}

}  // namespace ebbtide
