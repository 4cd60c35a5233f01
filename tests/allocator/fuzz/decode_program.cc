// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/fuzz/decode_program.h"

#include <iterator>
#include <numeric>

namespace ebbtide {
namespace {

constexpr size_t kMaxSteps = 1024;  // longer inputs find nothing that shorter ones do not
constexpr int kIterations = 10;     // enough for a plan to be made, followed and left
constexpr size_t kMaxRepeated = 4 * kMaxSteps;

// Of 64 values of an opcode, how many mean each kind of step, in the order of Step::Kind.
constexpr int kShares[] = {20, 12, 2, 9, 4, 1, 2, 2, 1, 1, 1, 2, 1, 2, 1, 3};
static_assert(std::size(kShares) == Step::kUseUntold);
static_assert(std::accumulate(std::begin(kShares), std::end(kShares), 0) == 64);

// Reads numbers off the input; behind its end everything is 0.
class ByteReader {
 public:
  ByteReader(const uint8_t* bytes, size_t size) : bytes_(bytes), left_(size) {}
  bool done() const { return left_ == 0; }
  uint32_t Next() {
    if (left_ == 0) return 0;
    --left_;
    return *bytes_++;
  }

  // A size whose order of magnitude one byte decides: so that a mutated byte moves it far or
  // little.
  uint64_t NextSize(uint32_t most_bits) {
    const uint32_t bits = Next() % (most_bits + 1);
    const uint64_t digits = Next() | 0x100;  // the leading one and eight more
    return bits > 8 ? digits << (bits - 8) : digits >> (8 - bits);
  }

 private:
  const uint8_t* bytes_;
  size_t left_;
};

Step::Kind DecodeKind(uint32_t opcode) {
  int kind = 0;
  for (int left = static_cast<int>(opcode % 64); left >= kShares[kind]; ++kind) {
    left -= kShares[kind];
  }
  return static_cast<Step::Kind>(kind);
}

// Only what a step needs is read, so that a program of many kinds stays short.
Step DecodeStep(ByteReader* reader) {
  const uint32_t opcode = reader->Next();
  Step step{.kind = DecodeKind(opcode), .slot = 0, .stream = opcode / 64, .amount = 0};
  switch (step.kind) {
    case Step::kAllocate:
      step.slot = reader->Next();
      step.amount = reader->NextSize(26);
      break;
    case Step::kSetBudget:
    case Step::kReleaseCached:
      step.amount = reader->NextSize(27);
      break;
    case Step::kUse:
      step.slot = reader->Next();
      step.amount = step.slot * 7;
      break;
    case Step::kFailDevice:
    case Step::kBreakDevice:
    case Step::kSetHandler:
      step.amount = reader->Next();
      break;
    case Step::kFree:
    case Step::kFreeElsewhere:
    case Step::kReplacePool:
    case Step::kTrimPool:
    case Step::kUseUntold:
      step.slot = reader->Next();
      break;
    case Step::kCompleteSome:
    case Step::kCompleteAll:
    case Step::kReplaceStream:
    case Step::kMendDevice:
    case Step::kRestartPeaks:
      break;
  }
  return step;
}

// A program that is planned: an iteration again and again, most of whose requests are large enough
// and those of the default stream and the shared pool.
void MakeSteady(std::vector<Step>* steps) {
  for (Step& step : *steps) {
    if ((step.kind != Step::kAllocate && step.kind != Step::kFree) || step.slot % 4 == 0) continue;
    step.slot *= 3;
    step.stream = 0;
    if (step.kind == Step::kAllocate) step.amount |= 0x2000;
  }
  const size_t length = steps->size();
  for (size_t i = length; i < kIterations * length && i < kMaxRepeated; ++i) {
    steps->push_back((*steps)[i - length]);
  }
}

}  // namespace

FuzzProgram DecodeProgram(const uint8_t* bytes, size_t size) {
  ByteReader reader(bytes, size);
  FuzzProgram program;
  const uint32_t shape = reader.Next();
  constexpr int64_t kGranularities[] = {2 << 20, 64 << 10, 4 << 10, 1 << 20};
  program.seed = reader.Next();
  const uint32_t device = shape / 4 % 4;
  program.shape = {.partial = device != 3,
                   .move = shape / 16 % 2 == 0,
                   .large_pieces = shape / 32 % 2 == 0,
                   .streams = static_cast<int>(1 + shape / 64),
                   .granularity = Bytes(kGranularities[shape % 4]),
                   .planned = device == 2 || (device == 3 && program.seed % 2 == 1)};
  while (!reader.done() && program.steps.size() < kMaxSteps) {
    program.steps.push_back(DecodeStep(&reader));
  }
  // Bytes hardly ever repeat themselves, and nothing else is ever planned.
  if (program.shape.planned) MakeSteady(&program.steps);
  return program;
}

}  // namespace ebbtide
