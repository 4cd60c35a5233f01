// SPDX-License-Identifier: Apache-2.0

#include "allocator/snapshot_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "allocator/snapshot_pickle.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

constexpr int64_t kDayUs = int64_t{24} * 3600 * 1'000'000;

absl::StatusOr<std::string> ContentOf(const Snapshot& snapshot, const std::string& path) {
  if (absl::EndsWith(path, ".csv")) return FormatRmmCsv(RmmEventsOf(snapshot));
  return SnapshotToPickle(snapshot);
}

}  // namespace

std::vector<RmmEvent> RmmEventsOf(const Snapshot& snapshot) {
  std::vector<RmmEvent> events;
  absl::flat_hash_map<uint64_t, Bytes> live;
  for (const HistoryEvent& event : snapshot.history) {
    RmmEvent rmm{.time_us = event.time_us % kDayUs,
                 .pointer = event.address,
                 .size = event.size,
                 .stream = event.stream};
    switch (event.action) {
      case HistoryAction::kAlloc:
        live[event.address] = event.size;
        break;
      case HistoryAction::kFreeRequested: {
        const auto allocated = live.find(event.address);
        if (allocated == live.end()) continue;
        rmm.action = RmmEvent::Action::kFree;
        rmm.size = allocated->second;
        live.erase(allocated);
        break;
      }
      case HistoryAction::kOom:
        rmm.action = RmmEvent::Action::kAllocateFailure;
        rmm.pointer = 0;
        break;
      default:
        continue;
    }
    events.push_back(rmm);
  }
  return events;
}

absl::Status WriteSnapshotFile(const Snapshot& snapshot, const std::string& path) {
  EBB_ASSIGN_OR_RETURN(const std::string content, ContentOf(snapshot, path));
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(errno)));
}

}  // namespace ebbtide
