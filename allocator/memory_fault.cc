// SPDX-License-Identifier: Apache-2.0

#include "allocator/memory_fault.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ebbtide {
namespace {

// Neither is a likely value of text, of a small number or of an address, and as a float both are
// large enough to stand out.
constexpr unsigned char kZoneByte = 0xbd;
constexpr unsigned char kPoisonByte = 0xdd;

constexpr size_t kShownBytes = 16;

unsigned char* Payload(const CheckedBlock& block) {
  return reinterpret_cast<unsigned char*>(block.payload);
}

size_t Size(const CheckedBlock& block) { return static_cast<size_t>(block.size.count()); }

// Where bytes of a range differ from the one they should all be.
struct Damage {
  bool any = false;
  size_t first = 0;
  size_t last = 0;
  size_t count = 0;
};

Damage FindDamage(const unsigned char* begin, size_t size, unsigned char expected) {
  Damage damage;
  // All bytes are the same when each is the one before it: at the speed of memcmp.
  if (size == 0 || (begin[0] == expected && memcmp(begin, begin + 1, size - 1) == 0)) return damage;
  for (size_t i = 0; i < size; ++i) {
    if (begin[i] == expected) continue;
    if (!damage.any) damage.first = i;
    damage.any = true;
    damage.last = i;
    ++damage.count;
  }
  return damage;
}

std::string HexDump(const unsigned char* begin, size_t size) {
  std::string text;
  for (size_t i = 0; i < std::min(size, kShownBytes); ++i) {
    absl::StrAppendFormat(&text, " %02x", begin[i]);
  }
  return size > kShownBytes ? text + " ..." : text;
}

std::string Counted(size_t count) {
  return absl::StrCat(count, count == 1 ? " byte was" : " bytes were");
}

std::string Dump(const unsigned char* begin, const Damage& damage) {
  return HexDump(begin + damage.first, damage.last - damage.first + 1);
}

const char* StateText(CheckedBlock::State state) {
  switch (state) {
    case CheckedBlock::State::kLive:
      return "live";
    case CheckedBlock::State::kBeingFreed:
      return "being freed";
    case CheckedBlock::State::kQuarantined:
      return "freed";
    case CheckedBlock::State::kGone:
      return "freed, and its memory given back";
  }
  return "";
}

void AppendStack(absl::string_view what, int64_t thread, const CallStack& stack,
                 std::string* text) {
  if (stack.empty()) return;
  absl::StrAppend(text, "  ", what);
  if (thread != 0) absl::StrAppend(text, " by thread ", thread);
  absl::StrAppend(text, ":\n", stack.Format("    "));
}

}  // namespace

void FillRedZones(const CheckedBlock& block, size_t zone) {
  memset(Payload(block) - zone, kZoneByte, zone);
  memset(Payload(block) + Size(block), kZoneByte, zone);
}

void Poison(const CheckedBlock& block) { memset(Payload(block), kPoisonByte, Size(block)); }

void CheckRedZones(const CheckedBlock& block, size_t zone) {
  const unsigned char* front = Payload(block) - zone;
  const unsigned char* rear = Payload(block) + Size(block);
  if (const Damage damage = FindDamage(front, zone, kZoneByte); damage.any) {
    ReportFault(absl::StrFormat("underrun: %s written before a block, from %d before it on:%s",
                                Counted(damage.count), zone - damage.first, Dump(front, damage)),
                &block, CallStack::Capture(1));
  }
  if (const Damage damage = FindDamage(rear, zone, kZoneByte); damage.any) {
    ReportFault(absl::StrFormat("overrun: %s written past a block, from %d after its end on:%s",
                                Counted(damage.count), damage.first, Dump(rear, damage)),
                &block, CallStack::Capture(1));
  }
}

void CheckPoison(const CheckedBlock& block) {
  const Damage damage = FindDamage(Payload(block), Size(block), kPoisonByte);
  if (!damage.any) return;
  ReportFault(absl::StrFormat("use after free: %s written to a freed block, from byte %d on:%s",
                              Counted(damage.count), damage.first, Dump(Payload(block), damage)),
              &block, CallStack::Capture(1));
}

std::string DescribeBlock(const CheckedBlock& block) {
  std::string text =
      absl::StrFormat("  block %#x: %d bytes, allocation number %d, %s\n", block.payload,
                      block.size.count(), block.number, StateText(block.state));
  AppendStack("allocated", block.allocating_thread, block.allocated, &text);
  AppendStack("freed", block.freeing_thread, block.freed, &text);
  return text;
}

void ReportFault(absl::string_view what, const CheckedBlock* block, const CallStack& here) {
  std::string text = absl::StrCat("[ebbtide] memory fault: ", what, "\n");
  if (block != nullptr) text += DescribeBlock(*block);
  AppendStack("noticed", 0, here, &text);
  // One write, so that the lines of several threads do not mix. If it fails, nobody can be told.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace ebbtide
