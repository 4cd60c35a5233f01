// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ebbtide {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Bytes PhysicalMemory(const std::string& root) {
  const std::string meminfo = ReadFile(root + "/proc/meminfo");
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemTotal:") || !absl::ConsumeSuffix(&line, "kB")) continue;
    int64_t kib = 0;
    if (absl::SimpleAtoi(line, &kib) && kib > 0) return Bytes(kib) * 1024;
  }
  return Bytes::Max();
}

// Where a control group hierarchy can be seen: the group `root` of it is mounted at `mount_point`.
struct Mount {
  std::string root;
  std::string mount_point;
};

// A line of mountinfo: "32 31 0:28 /group /mount/point rw,... [tags] - type source options".
std::optional<Mount> FindMount(const std::string& mountinfo, absl::string_view type,
                               absl::string_view controller) {
  for (absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> where = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> what = absl::StrSplit(halves.second, ' ');
    if (where.size() < 5 || what.size() < 3 || what[0] != type) continue;
    const std::vector<absl::string_view> options = absl::StrSplit(what[2], ',');
    if (!controller.empty() &&
        std::find(options.begin(), options.end(), controller) == options.end()) {
      continue;
    }
    return Mount{std::string(where[3]), std::string(where[4])};
  }
  return std::nullopt;
}

// This process's group in the hierarchy with `controller` (version 1) or in the unified one
// (version 2, empty controller list). A line of /proc/self/cgroup: "4:memory:/group" or
// "0::/group".
std::optional<std::string> FindGroup(const std::string& cgroup, absl::string_view controller) {
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool found = controller.empty() ? fields[0] == "0" && fields[1].empty()
                                          : std::find(controllers.begin(), controllers.end(),
                                                      controller) != controllers.end();
    if (found) return std::string(fields[2]);
  }
  return std::nullopt;
}

Bytes ReadLimit(const std::string& path) {
  int64_t limit = 0;
  // Version 2 says "max" for no limit, version 1 a number near 2^63: both end at the caller's
  // minimum.
  if (absl::SimpleAtoi(ReadFile(path), &limit) && limit > 0) return Bytes(limit);
  return Bytes::Max();
}

// The least limit on the way from `group` up to the mount point. A container often sees only its
// own group mounted, while /proc/self/cgroup names the path from the host's top: that prefix is cut
// off.
Bytes LeastLimit(const std::string& root, const Mount& mount, absl::string_view group,
                 absl::string_view file) {
  if (mount.root != "/" && !absl::ConsumePrefix(&group, mount.root)) group = "";
  std::string folder = absl::StrCat("/", absl::StripPrefix(group, "/"));
  Bytes least = Bytes::Max();
  while (true) {
    const absl::string_view below = folder == "/" ? absl::string_view() : folder;
    least = std::min(least, ReadLimit(absl::StrCat(root, mount.mount_point, below, "/", file)));
    if (folder == "/") return least;
    folder.resize(std::max<size_t>(folder.rfind('/'), 1));
  }
}

Bytes ControlGroupLimit(const std::string& root, absl::string_view type,
                        absl::string_view controller, absl::string_view file) {
  const std::optional<Mount> mount =
      FindMount(ReadFile(root + "/proc/self/mountinfo"), type, controller);
  const std::optional<std::string> group =
      FindGroup(ReadFile(root + "/proc/self/cgroup"), controller);
  if (!mount.has_value() || !group.has_value()) return Bytes::Max();
  return LeastLimit(root, *mount, *group, file);
}

}  // namespace

Bytes MachineMemoryLimit(const std::string& root) {
  return std::min({PhysicalMemory(root), ControlGroupLimit(root, "cgroup2", "", "memory.max"),
                   ControlGroupLimit(root, "cgroup", "memory", "memory.limit_in_bytes")});
}

}  // namespace ebbtide
