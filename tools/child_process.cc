// SPDX-License-Identifier: Apache-2.0
#include "tools/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

// Both ends of a pipe; each is closed at most once.
class Pipe {
 public:
  Pipe() { EBB_CHECK(pipe2(ends_.data(), O_CLOEXEC) == 0) << std::strerror(errno); }
  ~Pipe() {
    CloseWriteEnd();
    close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void CloseWriteEnd() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }

 private:
  std::array<int, 2> ends_;
};

std::vector<std::string> MergeEnvironment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) merged.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) merged.push_back(absl::StrCat(name, "=", value));
  }
  return merged;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command,
                            const std::map<std::string, std::string>& environment, const Pipe& out,
                            const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end(), STDERR_FILENO);
  const std::vector<std::string> variables = MergeEnvironment(environment);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), &actions, nullptr,
                                 Pointers(command).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  return absl::NotFoundError(
      absl::StrFormat("cannot run \"%s\": %s", command[0], std::strerror(error)));
}

// Moves what is there into `text`; false at the end of the stream.
bool ReadSome(int descriptor, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t length = read(descriptor, buffer.data(), buffer.size());
  if (length > 0) text.append(buffer.data(), static_cast<size_t>(length));
  return length > 0 || (length < 0 && errno == EINTR);
}

// Reads both streams until both end; false when `deadline` comes first.
bool ReadAll(const Pipe& out, const Pipe& err, Nanos deadline, ChildResult& result) {
  std::array<pollfd, 2> streams = {{{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}}};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    const Nanos left = deadline - MonotonicNow();
    if (left <= Nanos(0)) return false;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left);
    if (poll(streams.data(), streams.size(), static_cast<int>(wait.count())) <= 0) continue;
    if (streams[0].revents != 0 && !ReadSome(streams[0].fd, result.out)) streams[0].fd = -1;
    if (streams[1].revents != 0 && !ReadSome(streams[1].fd, result.err)) streams[1].fd = -1;
  }
  return true;
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& command,
                                     const std::map<std::string, std::string>& environment,
                                     Nanos limit) {
  EBB_CHECK(!command.empty());
  Pipe out;
  Pipe err;
  EBB_ASSIGN_OR_RETURN(const pid_t child, Spawn(command, environment, out, err));
  out.CloseWriteEnd();
  err.CloseWriteEnd();

  ChildResult result;
  const bool ended = ReadAll(out, err, MonotonicNow() + limit, result);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return absl::DeadlineExceededError(
        absl::StrFormat("\"%s\" did not end within %.0f s", command[0], ToSeconds(limit)));
  }
  result.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace ebbtide
