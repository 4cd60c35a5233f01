// SPDX-License-Identifier: Apache-2.0
#include "base/output_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ebbtide {

std::string ExpandOutputPath(absl::string_view pattern, pid_t pid, absl::string_view rank) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      absl::StrAppend(&path, pid);
    } else if (next == 'r') {
      absl::StrAppend(&path, rank);
    } else if (next == '%') {
      path.push_back('%');
    } else {
      path.push_back(pattern[i]);
      continue;
    }
    ++i;
  }
  return path;
}

std::string RankText(const char* rank_variable) {
  const absl::string_view rank = rank_variable == nullptr ? "" : rank_variable;
  // A value with a slash in it would otherwise choose another folder.
  const bool plain = !rank.empty() && std::all_of(rank.begin(), rank.end(), absl::ascii_isdigit);
  return plain ? std::string(rank) : "0";
}

}  // namespace ebbtide
