// SPDX-License-Identifier: Apache-2.0
//
// What is known at the moment when an allocation finally fails, as numbers, and the text that is
// made of them. The allocator fills in what it knows; whoever turns the failure into the host
// framework's error adds lines of its own (what was pinned and by what, what was evicted, a
// suggestion). Plain values: copy them freely; nothing is owned, nothing is locked.

#ifndef EBBTIDE_ALLOCATOR_OUT_OF_MEMORY_H_
#define EBBTIDE_ALLOCATOR_OUT_OF_MEMORY_H_

#include <string>

#include "absl/types/span.h"
#include "base/bytes.h"

namespace ebbtide {

struct OutOfMemory {
  Bytes asked;                    // the request, before rounding
  Bytes budget = Bytes::Max();    // the limit in force; Bytes::Max() is none
  Bytes device_capacity;          // what the device has in all
  Bytes held;                     // committed bytes at the moment of failure
  Bytes live;                     // of these, in blocks that were handed out
  Bytes cached;                   // held - live: could not be given back or is shared with live
  Bytes kept_by_pools;            // the part of cached that private pools keep for themselves
  Bytes largest_free_range;       // most contiguous free addresses, memory behind them or not
  bool device_exhausted = false;  // the device itself said no, below the budget
  bool needs_contiguous = false;  // enough bytes were free, but not in one piece
};

// Several lines, without a newline at the end: a headline, then one line of numbers. The figures
// add up: held = live + cached.
std::string FormatOutOfMemory(const OutOfMemory& details);

// A report with `lines` after it, each on a line of its own as FormatOutOfMemory's are.
std::string WithLines(std::string report, absl::Span<const std::string> lines);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_OUT_OF_MEMORY_H_
