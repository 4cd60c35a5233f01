// SPDX-License-Identifier: Apache-2.0
//
// Call sequences of programs: those that tests/tracker/record_calls.py recorded, and those that a
// test puts together. A sequence names storages by number and says when they are dropped.
//
// Threads: none. Ownership: plain values.

#ifndef EBBTIDE_TESTS_TRACKER_PATTERN_CALL_FILE_H_
#define EBBTIDE_TESTS_TRACKER_PATTERN_CALL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace ebbtide {

struct RecordedCall {
  enum Kind : char { kRead = ' ', kInPlace = '!', kMade = '+', kDropped = '-' };
  struct Touched {
    int32_t storage;
    Kind kind;
  };
  uint64_t signature = 0;
  std::vector<Touched> touched;  // kDropped after all others
  Nanos duration{1000};
};

using Calls = std::vector<RecordedCall>;

// Reads a file in the format that record_calls.py describes, with references resolved. NotFound if
// there is none, InvalidArgument with the line if it is not such a file.
absl::StatusOr<Calls> ReadCalls(const std::string& path);

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_TRACKER_PATTERN_CALL_FILE_H_
