// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ebbtide {
namespace {

// Writes all of `text`. A log that cannot be written must not disturb the program: errors end it.
void WriteFully(int descriptor, absl::string_view text) {
  const int saved_errno = errno;
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text.remove_prefix(static_cast<size_t>(written));
  }
  errno = saved_errno;
}

// spdlog's own sinks hold a mutex while they write, which a fork on another thread would copy in
// its locked state into the child. One write(2) a line needs none: lines never mix below PIPE_BUF
// bytes or in files opened for appending.
class UnlockedSink : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) final {
    std::string lines;
    const std::string prefix = Prefix(message);
    const absl::string_view text(message.payload.data(), message.payload.size());
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      absl::StrAppend(&lines, prefix, line, "\n");
    }
    WriteFully(descriptor_, lines);
  }
  void flush() final {}
  // Each sink has its own fixed form.
  void set_pattern(const std::string&) final {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) final {}

 protected:
  explicit UnlockedSink(int descriptor) : descriptor_(descriptor) {}
  virtual std::string Prefix(const spdlog::details::log_msg& message) const = 0;

 private:
  const int descriptor_;
};

class StderrSink final : public UnlockedSink {
 public:
  StderrSink() : UnlockedSink(STDERR_FILENO) {}

 private:
  std::string Prefix(const spdlog::details::log_msg&) const override { return "[ebbtide] "; }
};

class FileSink final : public UnlockedSink {
 public:
  explicit FileSink(int descriptor) : UnlockedSink(descriptor) {}

 private:
  // UTC by calendar arithmetic: localtime_r and gmtime_r both take a lock of the C library's.
  std::string Prefix(const spdlog::details::log_msg& message) const override {
    using std::chrono::floor;
    const auto day = floor<std::chrono::days>(message.time);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(floor<std::chrono::milliseconds>(message.time - day));
    constexpr std::array<const char*, 7> kNames = {"trace", "debug",  "info", "warning",
                                                   "error", "report", "off"};
    return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %d %s ",
                           static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                           static_cast<unsigned>(date.day()), time.hours().count(),
                           time.minutes().count(), time.seconds().count(),
                           time.subseconds().count(), getpid(), kNames[message.level]);
  }
};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Report lines are above every level that can be asked for, and below "off".
constexpr spdlog::level::level_enum kReportLevel = spdlog::level::critical;

// Not in spdlog's registry: that would create its default logger, which writes to stdout.
std::unique_ptr<spdlog::logger> MakeLogger(LogLevel level, std::vector<spdlog::sink_ptr> sinks) {
  auto logger = std::make_unique<spdlog::logger>("ebbtide", sinks.begin(), sinks.end());
  logger->set_level(ToSpdlog(level));
  return logger;
}

struct State {
  std::unique_ptr<spdlog::logger> loud;   // stderr, and the file if there is one.
  std::unique_ptr<spdlog::logger> quiet;  // Takes what `quiet` keeps off stderr; null if not quiet.
  State* previous = nullptr;
};

// No state is ever freed: a line may be on its way on another thread, or come at exit after every
// destructor has run. InitLog is called once or twice in a process.
std::atomic<State*> current{nullptr};

State* MakeState(const LogOptions& options, int file) {
  std::vector<spdlog::sink_ptr> to_file;
  if (file >= 0) to_file.push_back(std::make_shared<FileSink>(file));
  std::vector<spdlog::sink_ptr> to_both = to_file;
  to_both.push_back(std::make_shared<StderrSink>());

  auto state = std::make_unique<State>();
  state->loud = MakeLogger(options.level, to_both);
  if (options.quiet) {
    state->quiet = MakeLogger(options.level, to_file);
    if (to_file.empty()) state->quiet->set_level(spdlog::level::off);
  }
  return state.release();
}

spdlog::logger& LoggerFor(spdlog::level::level_enum level) {
  State* state = current.load(std::memory_order_acquire);
  if (state == nullptr) {
    State* fresh = MakeState(LogOptions(), /*file=*/-1);
    if (current.compare_exchange_strong(state, fresh)) {
      state = fresh;
    } else {
      delete fresh;
    }
  }
  const bool hushed = state->quiet != nullptr && level != spdlog::level::err;
  return hushed ? *state->quiet : *state->loud;
}

void Write(spdlog::level::level_enum level, absl::string_view text) {
  text = absl::StripSuffix(text, "\n");
  LoggerFor(level).log(level, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

absl::Status InitLog(const LogOptions& options) {
  absl::Status status;
  int file = -1;
  if (!options.log_file.empty()) {
    file = open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) {
      status = absl::UnavailableError(absl::StrFormat("cannot write the log file \"%s\": %s",
                                                      options.log_file, std::strerror(errno)));
    }
  }
  State* state = MakeState(options, file);
  state->previous = current.load();
  while (!current.compare_exchange_weak(state->previous, state)) {
  }
  return status;
}

bool LogEnabled(LogLevel level) { return LoggerFor(ToSpdlog(level)).should_log(ToSpdlog(level)); }

void LogText(LogLevel level, absl::string_view text) { Write(ToSpdlog(level), text); }

void LogReport(absl::string_view lines) { Write(kReportLevel, lines); }

bool LogLimiter::Allow(bool* last) {
  // Read first, so that a loop that runs for days cannot wrap the counter around.
  if (seen_.load(std::memory_order_relaxed) >= limit_) return false;
  const int place = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  *last = place == limit_;
  return place <= limit_;
}

}  // namespace ebbtide
