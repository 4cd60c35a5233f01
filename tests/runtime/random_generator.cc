// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/registry.h"
#include "tests/runtime/random_program.h"

namespace ebbtide {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, const GeneratorOptions& options) : random_(seed), options_(options) {}

  Program Make(uint64_t seed) {
    Program program;
    program.seed = seed;
    Settings(&program);
    // Something to compute from.
    const int sources = 1 + Below(3);
    for (int i = 0; i < sources; ++i) program.steps.push_back(NewBuffer());
    const int steps = 5 + Below(50);
    while (static_cast<int>(program.steps.size()) < steps) program.steps.push_back(Any());
    return program;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool OneIn(int n) { return Below(n) == 0; }

  void Settings(Program* program) {
    constexpr double kShares[] = {0, 0.4, 0.6, 0.75, 0.9, 1.0, 1.25, 1.5};
    program->budget_share = kShares[Below(8)];
    const std::vector<absl::string_view> policies = PolicyNames();
    program->policy = std::string(policies[random_() % policies.size()]);
    RuntimeConfig& config = program->config;
    constexpr int64_t kMinBytes[] = {1, 1, 1, 4096, 16384};
    config.min_bytes = Bytes(kMinBytes[Below(5)]);
    constexpr double kStress[] = {0, 0.3, 1};
    config.stress_probability = kStress[Below(3)];
    config.stress_seed = random_();
    config.verify = OneIn(3);
    constexpr uint32_t kDepths[] = {10'000, 10'000, 1, 3};
    config.max_depth = kDepths[Below(4)];
    constexpr uint32_t kChains[] = {16, 16, 0, 1, 2};
    config.max_chain = kChains[Below(5)];
    constexpr int64_t kCopies[] = {0, 0, 4096, 16384, 65536};
    config.copy_limit = Bytes(kCopies[Below(5)]);
    program->real_host_memory = OneIn(50);
  }

  // Small sizes are all of one of the allocator's size classes, because it takes memory for each.
  int64_t Size() {
    if (OneIn(6)) return 256 - 8 * Below(4);
    return 4096 * (2 + Below(6)) - 8 * Below(16);
  }

  int OwnSlot() { return Below(kOwnSlots); }
  int FilledSlot() {
    int slot = OwnSlot();
    while (!filled_[slot]) slot = (slot + 1) % kOwnSlots;
    return slot;
  }

  Piece Part(bool shared) {
    Piece piece;
    piece.slot = shared && OneIn(3) ? kOwnSlots + Below(kSharedSlots) : FilledSlot();
    piece.from = OneIn(2) ? 0 : static_cast<uint32_t>(random_() >> 40);
    piece.words = static_cast<uint32_t>(random_() >> 40);
    return piece;
  }

  Step NewBuffer() {
    Step step{.kind = Step::Kind::kNew, .seed = random_()};
    step.slot = OwnSlot();
    step.outputs.push_back({step.slot, Size()});
    filled_[step.slot] = true;
    return step;
  }

  Step Call() {
    Step step{.kind = Step::Kind::kCall, .seed = random_()};
    step.draws = !options_.threads && OneIn(4);
    step.fails = OneIn(25);
    const int shape = Below(10);
    const int reads = shape < 6 ? 1 + Below(3) : Below(3);
    for (int i = 0; i < reads; ++i) step.reads.push_back(Part(options_.threads));
    const int writes = shape < 5 ? 0 : 1 + Below(2);
    for (int i = 0; i < writes; ++i) {
      step.writes.push_back(Part(options_.threads && OneIn(3)));
    }
    const int outputs = shape < 5 ? 1 + (OneIn(3) ? Below(3) : 0) : (OneIn(2) ? Below(3) : 0);
    for (int i = 0; i < outputs; ++i) step.outputs.push_back({OwnSlot(), Size()});
    for (const Step::Output& output : step.outputs) filled_[output.slot] |= !step.fails;
    step.replayable = !OneIn(12);
    return step;
  }

  Step Any() {
    const int kind = Below(100);
    if (kind < 62) return Call();
    if (kind < 65) return NewBuffer();
    Step step{.kind = Step::Kind::kRead, .seed = random_()};
    step.slot = FilledSlot();
    if (kind < 68) {
      step.kind = Step::Kind::kDrop;
      filled_[step.slot] = false;
      if (std::none_of(filled_, filled_ + kOwnSlots, [](bool filled) { return filled; })) {
        return NewBuffer();
      }
    } else if (kind < 82) {
      step.kind = Step::Kind::kRead;
    } else if (kind < 90) {
      step.kind = Step::Kind::kWrite;
      step.writes.push_back(Part(options_.threads));
    } else if (kind < 92) {
      step.kind = Step::Kind::kEscape;
    } else if (kind < 95) {
      step.kind = Step::Kind::kPoke;
      step.writes.push_back(Part(false));
    } else if (kind < 97 && !options_.threads) {
      step.kind = Step::Kind::kPinned;
      step.inside = 1 + Below(6);
    } else if (kind < 98) {
      step.kind = Step::Kind::kReleaseCached;
    }
    return step;
  }

  std::mt19937_64 random_;
  const GeneratorOptions options_;
  bool filled_[kOwnSlots] = {};
};

std::string Join(const std::vector<Piece>& pieces) {
  return absl::StrJoin(pieces, ", ", [](std::string* out, const Piece& piece) {
    absl::StrAppend(out, "s", piece.slot, "[", piece.from, "+", piece.words, "]");
  });
}

std::string Describe(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kNew:
      return absl::StrCat("s", step.slot, " = new ", step.outputs[0].bytes, " bytes");
    case Step::Kind::kDrop:
      return absl::StrCat("drop s", step.slot);
    case Step::Kind::kRead:
      return absl::StrCat("read s", step.slot);
    case Step::Kind::kWrite:
      return absl::StrCat("write ", Join(step.writes));
    case Step::Kind::kEscape:
      return absl::StrCat("escape s", step.slot);
    case Step::Kind::kPoke:
      return absl::StrCat("poke ", Join(step.writes));
    case Step::Kind::kPinned:
      return absl::StrCat("pin s", step.slot, " during the next ", step.inside);
    case Step::Kind::kReleaseCached:
      return "release cached memory";
    case Step::Kind::kCall:
      break;
  }
  std::string line = absl::StrJoin(step.outputs, ", ", [](std::string* out, const auto& output) {
    absl::StrAppend(out, "s", output.slot, ":", output.bytes);
  });
  absl::StrAppend(&line, line.empty() ? "call(" : " = call(", Join(step.reads), ")");
  if (!step.writes.empty()) absl::StrAppend(&line, " writes ", Join(step.writes));
  if (step.draws) absl::StrAppend(&line, " draws");
  if (step.fails) absl::StrAppend(&line, " fails");
  if (!step.replayable) absl::StrAppend(&line, " once");
  return line;
}

}  // namespace

Program GenerateProgram(uint64_t seed, const GeneratorOptions& options) {
  return Generator(seed, options).Make(seed);
}

std::string Describe(const Program& program) {
  const RuntimeConfig& config = program.config;
  std::string text = absl::StrCat(
      "seed ", program.seed, ": policy ", program.policy, ", budget share ", program.budget_share,
      ", min_bytes ", config.min_bytes.count(), ", stress ", config.stress_probability,
      ", max_depth ", config.max_depth, ", max_chain ", config.max_chain, ", copy_limit ",
      config.copy_limit.count(), config.verify ? ", verify" : "",
      program.real_host_memory ? ", host memory" : "", "\n");
  for (size_t i = 0; i < program.steps.size(); ++i) {
    absl::StrAppend(&text, "  ", i, ": ", Describe(program.steps[i]), "\n");
  }
  return text;
}

}  // namespace ebbtide
