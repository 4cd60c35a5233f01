// SPDX-License-Identifier: Apache-2.0
//
// The log of RMM's logging resource, which its users have at hand and its replay benchmark reads:
//
//     Thread,Time,Action,Pointer,Size,Stream
//     2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
//     2342727,15:47:02.841977,allocate failure,(nil),8589934592,0x2
//     2342727,15:47:02.842003,free,0x10012400000,1048576,0
//
// Pointers and streams are hexadecimal, with or without 0x; the separator before the microseconds
// is a point or, in older logs, a colon.
//
// Pure functions: safe on any thread, nothing is owned.

#ifndef EBBTIDE_ALLOCATOR_RMM_CSV_H_
#define EBBTIDE_ALLOCATOR_RMM_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"

namespace ebbtide {

struct RmmEvent {
  enum class Action : uint8_t { kAllocate, kAllocateFailure, kFree };

  int64_t thread = 0;
  int64_t time_us = 0;  // since midnight
  Action action = Action::kAllocate;
  uint64_t pointer = 0;
  Bytes size;
  StreamId stream = kDefaultStream;
  friend bool operator==(const RmmEvent&, const RmmEvent&) = default;
};

// Reads a whole log. Errors: InvalidArgument with the number of the line and the value that is
// wrong: another header, another number of columns, a value out of its range, an allocation without
// a pointer, a last line that was cut off (it has no line end).
absl::StatusOr<std::vector<RmmEvent>> ParseRmmCsv(absl::string_view text);

// The log of these events. REQUIRES: times are below 24 hours, sizes are not negative.
std::string FormatRmmCsv(absl::Span<const RmmEvent> events);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_RMM_CSV_H_
