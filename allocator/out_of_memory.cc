// SPDX-License-Identifier: Apache-2.0

#include "allocator/out_of_memory.h"

#include "absl/strings/str_cat.h"

namespace ebbtide {
namespace {

std::string LimitText(Bytes budget) {
  return budget == Bytes::Max() ? "no budget set" : absl::StrCat("budget ", FormatBytes(budget));
}

std::string PoolsText(Bytes kept) {
  if (kept == Bytes(0)) return "";
  return absl::StrCat(" (", FormatBytes(kept), " of it kept by private pools)");
}

}  // namespace

std::string FormatOutOfMemory(const OutOfMemory& details) {
  std::string text = absl::StrCat("out of memory: asked for ", FormatBytes(details.asked), " (",
                                  details.asked.count(), " bytes), ", LimitText(details.budget));
  if (details.device_exhausted) {
    absl::StrAppend(&text, ", but the device (", FormatBytes(details.device_capacity),
                    ") has no more to give");
  }
  absl::StrAppend(&text, "\n  held ", FormatBytes(details.held), " = live ",
                  FormatBytes(details.live), " + cached ", FormatBytes(details.cached),
                  PoolsText(details.kept_by_pools), "; largest free range ",
                  FormatBytes(details.largest_free_range));
  if (details.needs_contiguous) {
    absl::StrAppend(&text, "\n  enough bytes are free, but not in one piece");
  }
  return text;
}

std::string WithLines(std::string report, absl::Span<const std::string> lines) {
  for (const std::string& line : lines) absl::StrAppend(&report, "\n  ", line);
  return report;
}

}  // namespace ebbtide
