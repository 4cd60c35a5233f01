// SPDX-License-Identifier: Apache-2.0

#include "allocator/allocation_trace.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "allocator/snapshot_pickle.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

using Kind = AllocationEvent::Kind;

constexpr Bytes kMostLive(int64_t{1} << 62);  // sums of two of them still fit
constexpr absl::string_view kCsvHeader = "seq,op,id,bytes,stream,t_us";

absl::Status At(absl::string_view what, int64_t number, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(what, " ", number, ": ", status.message()));
}

AllocationEvent FromHistory(const HistoryEvent& event) {
  AllocationEvent result;
  result.bytes = event.size;
  result.stream = event.stream;
  result.time_us = event.time_us;
  return result;
}

// Blocks that were allocated before the history of a device began, in the order in which it or the
// picture at its end mentions them.
std::vector<std::pair<uint64_t, AllocationEvent>> FindEarlierBlocks(const Snapshot& snapshot,
                                                                    int device) {
  std::vector<std::pair<uint64_t, AllocationEvent>> earlier;
  absl::flat_hash_set<uint64_t> mentioned;
  int64_t start_us = 0;
  bool started = false;
  for (const HistoryEvent& event : snapshot.history) {
    if (event.device != device) continue;
    if (!std::exchange(started, true)) start_us = event.time_us;
    const bool frees = event.action == HistoryAction::kFreeRequested;
    if (!frees && event.action != HistoryAction::kAlloc) continue;
    if (mentioned.insert(event.address).second && frees) {
      earlier.emplace_back(event.address, FromHistory(event));
      earlier.back().second.time_us = start_us;
    }
  }
  for (const SegmentPicture& segment : snapshot.segments) {
    if (segment.device != device) continue;
    for (const BlockPicture& block : segment.blocks) {
      if (block.state != BlockState::kActiveAllocated) continue;
      if (mentioned.contains(block.address)) continue;
      AllocationEvent event;
      event.bytes = block.requested;
      event.stream = segment.stream;
      event.time_us = start_us;
      earlier.emplace_back(block.address, event);
    }
  }
  return earlier;
}

// Reads lines of the CSV format.
class CsvLines {
 public:
  absl::Status Add(absl::string_view line) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    int64_t sequence = 0;
    int64_t bytes = 0;
    AllocationEvent event;
    if (cells.size() != 6 || !absl::SimpleAtoi(cells[0], &sequence) || cells[2].empty() ||
        !absl::SimpleAtoi(cells[3], &bytes) || !absl::SimpleAtoi(cells[4], &event.stream) ||
        !absl::SimpleAtoi(cells[5], &event.time_us)) {
      return absl::InvalidArgumentError(absl::StrCat("not six columns of numbers: ", line));
    }
    event.bytes = Bytes(bytes);
    const uint64_t key = keys_.try_emplace(cells[2], keys_.size()).first->second;
    if (cells[1] == "a") return builder_.Allocate(key, event);
    if (cells[1] != "f") return absl::InvalidArgumentError(absl::StrCat("not a or f: ", cells[1]));
    builder_.Free(key, event);
    return absl::OkStatus();
  }

  AllocationTrace Build() && { return std::move(builder_).Build(); }

 private:
  TraceBuilder builder_;
  absl::flat_hash_map<std::string, uint64_t> keys_;  // an id is any word
};

int FirstDevice(const Snapshot& snapshot) {
  int first = snapshot.history.empty() ? 0 : snapshot.history[0].device;
  for (const HistoryEvent& event : snapshot.history) first = std::min(first, event.device);
  return first;
}

}  // namespace

absl::Status TraceBuilder::Allocate(uint64_t key, AllocationEvent event) {
  if (event.bytes < Bytes(0)) return absl::InvalidArgumentError("a negative size");
  if (event.bytes == Bytes(0)) {
    ++trace_.left_out;
    return absl::OkStatus();
  }
  if (event.bytes > kMostLive - live_bytes_) {
    return absl::InvalidArgumentError("more bytes than any machine has");
  }
  if (!live_.try_emplace(key, trace_.events.size()).second) {
    return absl::InvalidArgumentError(absl::StrCat("block ", key, " is handed out while in use"));
  }
  event.kind = Kind::kAllocate;
  event.id = trace_.allocations++;
  trace_.events.push_back(event);
  live_bytes_ += event.bytes;
  trace_.peak_live = std::max(trace_.peak_live, live_bytes_);
  return absl::OkStatus();
}

void TraceBuilder::Free(uint64_t key, AllocationEvent event) {
  const auto found = live_.find(key);
  if (found == live_.end()) {
    ++trace_.left_out;
    return;
  }
  const AllocationEvent& allocation = trace_.events[found->second];
  event.kind = Kind::kFree;
  event.id = allocation.id;
  event.bytes = allocation.bytes;
  live_.erase(found);
  live_bytes_ -= event.bytes;
  trace_.events.push_back(event);
}

AllocationTrace TraceBuilder::Build() && { return std::move(trace_); }

absl::StatusOr<AllocationTrace> TraceFromRmm(absl::Span<const RmmEvent> events) {
  TraceBuilder builder;
  for (size_t i = 0; i < events.size(); ++i) {
    const RmmEvent& rmm = events[i];
    AllocationEvent event;
    event.bytes = rmm.size;
    event.stream = rmm.stream;
    event.thread = rmm.thread;
    event.time_us = rmm.time_us;
    switch (rmm.action) {
      case RmmEvent::Action::kAllocate:
        EBB_RETURN_IF_ERROR(
            At("RMM event", static_cast<int64_t>(i) + 1, builder.Allocate(rmm.pointer, event)));
        break;
      case RmmEvent::Action::kFree:
        builder.Free(rmm.pointer, event);
        break;
      case RmmEvent::Action::kAllocateFailure:
        ++builder.trace().unanswered;
        break;
    }
  }
  return std::move(builder).Build();
}

absl::StatusOr<AllocationTrace> TraceFromSnapshot(const Snapshot& snapshot, int device,
                                                  EarlierBlocks earlier) {
  TraceBuilder builder;
  if (earlier == EarlierBlocks::kInclude) {
    for (const auto& [address, event] : FindEarlierBlocks(snapshot, device)) {
      EBB_RETURN_IF_ERROR(
          At("earlier block at", static_cast<int64_t>(address), builder.Allocate(address, event)));
    }
  }
  for (size_t i = 0; i < snapshot.history.size(); ++i) {
    const HistoryEvent& event = snapshot.history[i];
    if (event.device != device) continue;
    if (event.action == HistoryAction::kAlloc) {
      EBB_RETURN_IF_ERROR(At("snapshot event", static_cast<int64_t>(i) + 1,
                             builder.Allocate(event.address, FromHistory(event))));
    } else if (event.action == HistoryAction::kFreeRequested) {
      builder.Free(event.address, FromHistory(event));
    } else if (event.action == HistoryAction::kOom) {
      ++builder.trace().unanswered;
    }
  }
  return std::move(builder).Build();
}

absl::StatusOr<AllocationTrace> TraceFromCsv(absl::string_view text) {
  CsvLines lines;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    if (number++ > 0) {
      EBB_RETURN_IF_ERROR(At("trace, line", number, lines.Add(line)));
    } else if (line != kCsvHeader) {
      return absl::InvalidArgumentError(
          absl::StrCat("trace, line 1: ", kCsvHeader, " is expected: ", line.substr(0, 80)));
    }
  }
  return std::move(lines).Build();
}

absl::StatusOr<AllocationTrace> ReadTraceFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad()) return absl::NotFoundError(absl::StrCat(path, ": unreadable"));
  std::string bytes = std::move(text).str();
  if (absl::StartsWith(bytes, "\x80")) {
    EBB_ASSIGN_OR_RETURN(const Snapshot snapshot, SnapshotFromPickle(std::move(bytes)));
    return TraceFromSnapshot(snapshot, FirstDevice(snapshot), EarlierBlocks::kInclude);
  }
  if (absl::StartsWith(bytes, "Thread,")) {
    EBB_ASSIGN_OR_RETURN(const std::vector<RmmEvent> events, ParseRmmCsv(bytes));
    return TraceFromRmm(events);
  }
  return TraceFromCsv(bytes);
}

}  // namespace ebbtide
