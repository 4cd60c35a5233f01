// SPDX-License-Identifier: Apache-2.0
#include "tests/tracker/pattern/call_file.h"

#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ebbtide {
namespace {

// FNV-1a: the same in every process.
uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool ParseTouched(absl::string_view word, RecordedCall* call) {
  RecordedCall::Touched touched = {0, RecordedCall::kRead};
  if (const char last = word.back(); last == '!' || last == '+' || last == '-') {
    touched.kind = static_cast<RecordedCall::Kind>(last);
    word.remove_suffix(1);
  }
  call->touched.push_back(touched);
  return absl::SimpleAtoi(word, &call->touched.back().storage);
}

bool ParseCall(const std::vector<absl::string_view>& words, const std::vector<uint64_t>& signatures,
               RecordedCall* call) {
  size_t signature;
  if (!absl::SimpleAtoi(words[0], &signature) || signature >= signatures.size()) return false;
  call->signature = signatures[signature];
  for (size_t i = 1; i < words.size(); ++i) {
    if (!ParseTouched(words[i], call)) return false;
  }
  return true;
}

bool Repeat(const std::vector<absl::string_view>& words, Calls* calls) {
  size_t first;
  size_t count;
  if (words.size() != 3 || !absl::SimpleAtoi(words[1], &first) ||
      !absl::SimpleAtoi(words[2], &count) || first >= calls->size()) {
    return false;
  }
  // One by one: a reference may reach into what it makes.
  for (size_t i = 0; i < count; ++i) calls->push_back(RecordedCall((*calls)[first + i]));
  return true;
}

}  // namespace

absl::StatusOr<Calls> ReadCalls(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  Calls calls;
  std::vector<uint64_t> signatures;
  size_t timed = 0;
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    bool understood = !words.empty();
    if (!understood || words[0] == "#") continue;
    if (words[0] == "s") {
      signatures.push_back(HashOf(line));
    } else if (words[0] == "=") {
      understood = Repeat(words, &calls);
    } else if (words[0] == "t") {
      understood = words.size() == 2 && timed + words[1].size() <= calls.size();
      for (size_t i = 0; understood && i < words[1].size(); ++i) {
        calls[timed++].duration = Nanos(std::llround(1000 * std::exp2((words[1][i] - 'A') / 4.0)));
      }
    } else {
      understood = ParseCall(words, signatures, &calls.emplace_back());
    }
    if (!understood) return absl::InvalidArgumentError(absl::StrCat(path, ": ", line));
  }
  return calls;
}

}  // namespace ebbtide
