// SPDX-License-Identifier: Apache-2.0
#include "base/options_text.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/options.h"

namespace ebbtide {
namespace {

constexpr absl::string_view kPageStart = R"(<!-- Made from the table in base/options.cc:
     bazel run //tools:options_page > docs/options.md -->

# Options

Each option is a flag of `ebbtide run` and an environment variable; a flag wins over the variable.

    ebbtide run --budget 8GiB -- python train.py
    LD_PRELOAD=/path/to/libebbtide.so EBBTIDE_BUDGET=8GiB python train.py

A variable that is empty counts as not set. A value that is not allowed is answered with one line
that names the variable, the value and what is allowed: `ebbtide run` then does not start the
program, and a program that is only preloaded runs unmanaged, unless `EBBTIDE_STRICT=1` refuses that
too. `ebbtide run` and `ebbtide doctor` warn about a variable that starts with `EBBTIDE_` and is not
on this page. `ebbtide run --print-env` prints the settings as `export` lines for a job script.

| flag | variable | default | meaning |
|---|---|---|---|
)";

std::string FlagText(const OptionSpec& spec) {
  if (spec.kind == OptionSpec::Kind::kFlag) return absl::StrCat("--", spec.name);
  return absl::StrCat("--", spec.name, " ", spec.value_name);
}

// Inside a table of Markdown a bar would end the cell.
std::string TableCell(absl::string_view text) {
  std::string cell;
  for (char c : text) {
    if (c == '|') cell.push_back('\\');
    cell.push_back(c);
  }
  return cell;
}

// Breaks `text` at spaces so that the page's source is as narrow as its neighbours.
std::string Wrap(absl::string_view text) {
  constexpr size_t kColumns = 100;
  std::string wrapped;
  while (text.size() > kColumns) {
    const size_t space = text.rfind(' ', kColumns);
    if (space == absl::string_view::npos) break;
    absl::StrAppend(&wrapped, text.substr(0, space), "\n");
    text.remove_prefix(space + 1);
  }
  return absl::StrCat(wrapped, text, "\n");
}

// Levenshtein: the least number of inserted, removed and replaced characters between the two.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string ClosestName(absl::string_view name) {
  std::string closest;
  for (const OptionSpec& spec : OptionTable()) {
    const std::string candidate = EnvironmentName(spec);
    if (closest.empty() || EditDistance(name, candidate) < EditDistance(name, closest)) {
      closest = candidate;
    }
  }
  return closest;
}

bool IsOption(absl::string_view name) {
  return std::any_of(OptionTable().begin(), OptionTable().end(),
                     [name](const OptionSpec& spec) { return EnvironmentName(spec) == name; });
}

}  // namespace

std::string OptionsMarkdown() {
  std::string page(kPageStart);
  for (const OptionSpec& spec : OptionTable()) {
    absl::StrAppendFormat(&page, "| `%s` | `%s` | %s | %s |\n", TableCell(FlagText(spec)),
                          EnvironmentName(spec), spec.default_text, spec.summary);
  }
  for (const OptionSpec& spec : OptionTable()) {
    absl::StrAppendFormat(&page, "\n## %s\n\n%s\n%s", spec.name, Wrap(spec.details),
                          Wrap(absl::StrCat("Allowed: ", spec.allowed, ".")));
  }
  return page;
}

std::vector<std::string> UnknownVariableWarnings(const char* const* environment) {
  std::vector<std::string> warnings;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const absl::string_view name = entry.substr(0, entry.find('='));
    if (!absl::StartsWith(name, "EBBTIDE_") || IsOption(name)) continue;
    warnings.push_back(absl::StrFormat("%s is not an option and has no effect; did you mean %s?",
                                       name, ClosestName(name)));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

}  // namespace ebbtide
