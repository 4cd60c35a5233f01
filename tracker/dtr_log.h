// SPDX-License-Identifier: Apache-2.0
//
// DtrLog: reads a program that was recorded in the log format of the DTR prototype
// (uwsampl/dtr-prototype, Kirisame et al., ICLR 2021), an instruction at a time.
//
// The format is one JSON object a line. Two instructions take several lines: a CONSTANT is followed
// by one MEMORY line, a CALL by a MEMORY and an ALIAS line for each of its results; the reader puts
// them together and checks that they belong to each other. Numbers may be strings, as the prototype
// writes them. What was recorded before `ANNOTATE START` is set-up of the framework and left out.
// What names mean (which tensor is bound to which, who still holds it) is the caller's to follow:
// policy/published/schedule.h does it as the published simulator does.
//
// Threads: one at a time. Ownership: the stream is the caller's and must outlive the reader; an
// instruction is a copy. Memory: one instruction, however long the log is. Another format gets a
// reader of its own that yields a DtrInstruction for each step.

#ifndef EBBTIDE_TRACKER_DTR_LOG_H_
#define EBBTIDE_TRACKER_DTR_LOG_H_

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace ebbtide {

// A tensor that a call made.
struct DtrResult {
  std::string name;
  Bytes bytes;
  // Which argument's memory it looks at, as an index into the arguments; -1 if it has its own.
  int alias = -1;
};

struct DtrInstruction {
  enum class Kind {
    kConstant,  // results[0] came from outside; it has no alias
    kCall,      // operation, arguments, results, duration
    kMutate,    // operation, arguments, mutated, duration
    kCopy,      // `name` becomes one more name of what `source` names
    kCopyFrom,  // `name`, which has a tensor, becomes a name of what `source` names
    kRelease,   // the program lets go of `name`
    kAnnotate,  // a mark of the program, its text in `name`: BACKWARD
  };

  Kind kind = Kind::kAnnotate;
  int64_t line = 0;  // counted from 1, of its first line
  std::string operation;
  std::string name;
  std::string source;
  std::vector<std::string> arguments;
  std::vector<DtrResult> results;
  std::vector<int> mutated;  // indices into the arguments
  Nanos duration{0};
};

class DtrLog {
 public:
  // `name` stands in front of the messages of errors.
  DtrLog(std::string name, std::istream* in) : name_(std::move(name)), in_(in) {}

  // The next instruction, or nothing at the end of the log.
  // Errors: InvalidArgument, with name and line, for a line that is no such object, a field that is
  // missing, a number that is negative or above 2^53, an index outside of the arguments, a MEMORY
  // or ALIAS line that is missing or out of place; and for a log without START. Nothing more can be
  // read after an error.
  absl::StatusOr<std::optional<DtrInstruction>> Next();

  // An InvalidArgument error that names this log and `line`, for what only the caller can see.
  absl::Status Error(int64_t line, absl::string_view what) const;

 private:
  class Line;

  // False at the end of the log.
  absl::StatusOr<bool> ReadLine(Line* line);
  absl::Status SkipToStart();
  // These give errors without name and line; Next adds both.
  absl::StatusOr<bool> ReadInstruction(DtrInstruction* instruction);
  absl::Status Fill(const Line& line, DtrInstruction* instruction);
  // The next line, which must be of `kind` and about the tensor `of`.
  absl::Status ReadBelonging(const char* kind, const std::string& of, Line* line);
  absl::StatusOr<Bytes> ReadMemory(const std::string& of);
  absl::StatusOr<int> ReadAlias(const std::string& of, size_t arguments);

  const std::string name_;
  std::istream* const in_;
  int64_t line_ = 0;
  bool started_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_DTR_LOG_H_
