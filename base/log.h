// SPDX-License-Identifier: Apache-2.0
//
// Lines for the person who runs the program. They go to stderr, never to stdout, each with the
// prefix "[ebbtide] ", and to a log file as well when one was asked for (there with time, process
// and level). Everything here may be called on any thread, before InitLog, at exit, and in a forked
// child: a line is one write(2) without any lock, nothing is buffered, and no thread is started.
//
// The library lives inside other people's programs, so it is quiet by default (warnings), and a
// warning that a loop could repeat uses EBB_WARN_LIMITED or EBB_WARN_ONCE. Paths that run for every
// operator do not log at all.
//
//     EBB_WARN("no backend for torch %s: the program runs unmanaged", version);
//
// The arguments of a line that is not wanted are not evaluated.

#ifndef EBBTIDE_BASE_LOG_H_
#define EBBTIDE_BASE_LOG_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace ebbtide {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

struct LogOptions {
  LogLevel level = LogLevel::kWarn;
  // On stderr only errors, and no report.
  bool quiet = false;
  // Appended to; empty for none. Gets every line of `level`, quiet or not.
  std::string log_file = {};
};

// Sets up the process's log. If the file cannot be opened, stderr is set up all the same and an
// error that names the file comes back. May be called again: the last call counts. An earlier file
// stays open for as long as a line on another thread may still be on its way into it.
absl::Status InitLog(const LogOptions& options);

// Whether a line of this level would go anywhere.
bool LogEnabled(LogLevel level);

// Writes `text` as one line, or as one line for each of its lines.
void LogText(LogLevel level, absl::string_view text);

// Writes the lines of a report, which are wanted at every level unless `quiet` is set.
void LogReport(absl::string_view lines);

// Lets the first `limit` lines of one kind pass. Safe on any thread.
class LogLimiter {
 public:
  explicit constexpr LogLimiter(int limit) : limit_(limit) {}
  // Returns false if the line must not be written. On the last line that may be, sets `*last`.
  bool Allow(bool* last);

 private:
  const int limit_;
  std::atomic<int> seen_{0};
};

inline constexpr int kLinesOfOneKind = 16;

}  // namespace ebbtide

#define EBB_LOG_(level, ...)                                                          \
  do {                                                                                \
    if (::ebbtide::LogEnabled(::ebbtide::LogLevel::level)) {                          \
      ::ebbtide::LogText(::ebbtide::LogLevel::level, ::absl::StrFormat(__VA_ARGS__)); \
    }                                                                                 \
  } while (false)

// Each takes a format and arguments as absl::StrFormat does.
#define EBB_ERROR(...) EBB_LOG_(kError, __VA_ARGS__)
#define EBB_WARN(...) EBB_LOG_(kWarn, __VA_ARGS__)
#define EBB_INFO(...) EBB_LOG_(kInfo, __VA_ARGS__)
#define EBB_DEBUG(...) EBB_LOG_(kDebug, __VA_ARGS__)

// A warning that appears once, however often and on however many threads the place is reached.
#define EBB_WARN_ONCE(...)                                                                   \
  do {                                                                                       \
    static ::ebbtide::LogLimiter ebb_limiter(1);                                             \
    bool ebb_last = false;                                                                   \
    if (::ebbtide::LogEnabled(::ebbtide::LogLevel::kWarn) && ebb_limiter.Allow(&ebb_last)) { \
      EBB_WARN(__VA_ARGS__);                                                                 \
    }                                                                                        \
  } while (false)

// A warning that appears at most kLinesOfOneKind times; the last one says that more are hidden.
#define EBB_WARN_LIMITED(...)                                                                \
  do {                                                                                       \
    static ::ebbtide::LogLimiter ebb_limiter(::ebbtide::kLinesOfOneKind);                    \
    bool ebb_last = false;                                                                   \
    if (::ebbtide::LogEnabled(::ebbtide::LogLevel::kWarn) && ebb_limiter.Allow(&ebb_last)) { \
      EBB_WARN("%s%s", ::absl::StrFormat(__VA_ARGS__),                                       \
               ebb_last ? " (further warnings of this kind are hidden)" : "");               \
    }                                                                                        \
  } while (false)

#endif  // EBBTIDE_BASE_LOG_H_
