// SPDX-License-Identifier: Apache-2.0

#include "allocator/rmm_csv.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

constexpr absl::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";
constexpr absl::string_view kActions[] = {"allocate", "allocate failure", "free"};
constexpr int64_t kMicrosInDay = int64_t{24} * 60 * 60 * 1'000'000;

absl::Status Error(int64_t line, absl::string_view what, absl::string_view value) {
  return absl::InvalidArgumentError(
      absl::StrCat("RMM log, line ", line, ": ", what, ": '", value.substr(0, 80), "'"));
}

// Reads a decimal number of `digits` digits from `begin`; -1 when it is none or above `most`.
int64_t Digits(absl::string_view text, size_t begin, size_t digits, int64_t most) {
  int64_t value = 0;
  for (size_t i = begin; i < begin + digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = 10 * value + (text[i] - '0');
  }
  return value <= most ? value : -1;
}

// Microseconds of HH:MM:SS.uuuuuu since midnight, or -1.
int64_t ParseTime(absl::string_view text) {
  if (text.size() != 15 || text[2] != ':' || text[5] != ':') return -1;
  if (text[8] != '.' && text[8] != ':') return -1;
  const int64_t hours = Digits(text, 0, 2, 23);
  const int64_t minutes = Digits(text, 3, 2, 59);
  const int64_t seconds = Digits(text, 6, 2, 59);
  const int64_t micros = Digits(text, 9, 6, 999'999);
  if (hours < 0 || minutes < 0 || seconds < 0 || micros < 0) return -1;
  return ((hours * 60 + minutes) * 60 + seconds) * 1'000'000 + micros;
}

bool ParseHex(absl::string_view text, uint64_t* value) {
  if (text == "(nil)") text = "0";
  absl::ConsumePrefix(&text, "0x");
  if (text.empty() || text.size() > 16) return false;
  *value = 0;
  for (char c : text) {
    const char lower = static_cast<char>(c | 0x20);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (lower < 'a' || lower > 'f')) return false;
    *value = *value << 4 | static_cast<uint64_t>(digit ? c - '0' : lower - 'a' + 10);
  }
  return true;
}

absl::StatusOr<RmmEvent> ParseLine(int64_t line, absl::string_view text) {
  const std::vector<absl::string_view> cells = absl::StrSplit(text, ',');
  if (cells.size() != 6) return Error(line, "6 columns are expected", text);
  RmmEvent event;
  if (!absl::SimpleAtoi(cells[0], &event.thread)) return Error(line, "a bad thread", cells[0]);
  event.time_us = ParseTime(cells[1]);
  if (event.time_us < 0) return Error(line, "a bad time", cells[1]);
  size_t action = 0;
  while (action < 3 && cells[2] != kActions[action]) ++action;
  if (action == 3) return Error(line, "an unknown action", cells[2]);
  event.action = static_cast<RmmEvent::Action>(action);
  if (!ParseHex(cells[3], &event.pointer)) return Error(line, "a bad pointer", cells[3]);
  int64_t size = -1;
  if (!absl::SimpleAtoi(cells[4], &size) || size < 0) return Error(line, "a bad size", cells[4]);
  event.size = Bytes(size);
  if (event.action == RmmEvent::Action::kAllocate && event.pointer == 0 && size > 0) {
    return Error(line, "an allocation without a pointer", cells[3]);
  }
  if (!ParseHex(cells[5], &event.stream)) return Error(line, "a bad stream", cells[5]);
  return event;
}

}  // namespace

absl::StatusOr<std::vector<RmmEvent>> ParseRmmCsv(absl::string_view text) {
  std::vector<RmmEvent> events;
  for (int64_t line = 1; line == 1 || !text.empty(); ++line) {
    const size_t end = text.find('\n');
    absl::string_view content = absl::StripSuffix(text.substr(0, end), "\r");
    if (line == 1) {
      if (content != kHeader) return Error(line, absl::StrCat(kHeader, " is expected"), content);
    } else {
      if (end == absl::string_view::npos) return Error(line, "the line is cut off", content);
      EBB_ASSIGN_OR_RETURN(const RmmEvent event, ParseLine(line, content));
      events.push_back(event);
    }
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  }
  return events;
}

std::string FormatRmmCsv(absl::Span<const RmmEvent> events) {
  std::string text = absl::StrCat(kHeader, "\n");
  for (const RmmEvent& event : events) {
    EBB_CHECK(event.time_us >= 0 && event.time_us < kMicrosInDay) << event.time_us;
    EBB_CHECK(event.size >= Bytes(0)) << event.size;
    const int64_t seconds = event.time_us / 1'000'000;
    absl::StrAppendFormat(
        &text, "%d,%02d:%02d:%02d.%06d,%s,%s,%d,%s\n", event.thread, seconds / 3600,
        seconds / 60 % 60, seconds % 60, event.time_us % 1'000'000,
        kActions[static_cast<int>(event.action)],
        event.pointer == 0 ? "(nil)" : absl::StrCat("0x", absl::Hex(event.pointer)),
        event.size.count(), event.stream == 0 ? "0" : absl::StrCat("0x", absl::Hex(event.stream)));
  }
  return text;
}

}  // namespace ebbtide
