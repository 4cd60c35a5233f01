// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/trace.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "bench/allocator/csv_files.h"
#include "bench/unpacked_archive.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

// Numbers the blocks and streams of one trace while it is read.
class Numbering {
 public:
  struct Live {
    uint32_t slot;
    int64_t bytes;
  };

  uint32_t Stream(absl::string_view name) {
    return streams_.try_emplace(name, static_cast<uint32_t>(streams_.size())).first->second;
  }

  // False when a block of this name is live already.
  bool Take(absl::string_view id, int64_t bytes, uint32_t* slot) {
    *slot = free_.empty() ? next_ : free_.back();
    if (!live_.try_emplace(id, Live{*slot, bytes}).second) return false;
    if (free_.empty()) {
      ++next_;
    } else {
      free_.pop_back();
    }
    return true;
  }

  // False when no block of this name is live.
  bool Return(absl::string_view id, Live* live) {
    const auto it = live_.find(id);
    if (it == live_.end()) return false;
    *live = it->second;
    free_.push_back(live->slot);
    live_.erase(it);
    return true;
  }

 private:
  absl::flat_hash_map<std::string, Live> live_;
  absl::flat_hash_map<std::string, uint32_t> streams_;
  std::vector<uint32_t> free_;
  uint32_t next_ = 0;
};

// Returns false when the line is no event of a program that could have run.
bool AddLine(absl::string_view line, Numbering* numbering, Trace* trace, int64_t* live) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  int64_t bytes = 0;
  if (cells.size() < 5 || !absl::SimpleAtoi(cells[3], &bytes) || bytes < 0) return false;
  const absl::string_view id = cells[2];
  const uint32_t stream = numbering->Stream(cells[4]);
  if (cells[1] == "a") {
    uint32_t slot = 0;
    if (!numbering->Take(id, bytes, &slot)) return false;
    if (bytes > 0) trace->Add({bytes, slot, stream}, bytes, live);
    return true;
  }
  Numbering::Live block;
  if (cells[1] != "f" || !numbering->Return(id, &block)) return false;
  if (block.bytes > 0) trace->Add({0, block.slot, stream}, block.bytes, live);
  return true;
}

absl::StatusOr<std::vector<Trace>> ReadFolder(const std::string& folder) {
  EBB_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, ListCsvFiles(folder));
  std::vector<Trace> traces;
  for (const fs::path& path : paths) {
    std::ifstream file(path);
    EBB_ASSIGN_OR_RETURN(Trace trace, ReadTrace(path.stem().string(), file));
    traces.push_back(std::move(trace));
  }
  return traces;
}

absl::StatusOr<std::vector<Trace>> ReadArchive(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(const UnpackedArchive archive, UnpackedArchive::Unpack(path));
  return ReadFolder(archive.folder().string());
}

}  // namespace

void Trace::Add(TraceOp op, int64_t size, int64_t* live) {
  ops.push_back(op);
  slots = std::max(slots, op.slot + 1);
  if (op.bytes > 0) {
    ++requests;
    *live += size;
    peak_live = std::max(peak_live, *live);
  } else {
    *live -= size;
  }
}

absl::StatusOr<Trace> ReadTrace(const std::string& name, std::istream& in) {
  Trace trace;
  trace.name = name;
  Numbering numbering;
  int64_t live = 0;
  int64_t number = 1;
  std::string line;
  if (!std::getline(in, line) || !absl::StartsWith(line, "seq,op,id,bytes,stream")) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": its first line is not seq,op,id,bytes,stream,t_us"));
  }
  while (std::getline(in, line)) {
    ++number;
    if (AddLine(line, &numbering, &trace, &live)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " line ", number, ": no request, nor the free of a live block: ", line));
  }
  return trace;
}

absl::StatusOr<std::vector<Trace>> ReadTraces(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, ": not there"));
  return fs::is_directory(path, error) ? ReadFolder(path) : ReadArchive(path);
}

}  // namespace ebbtide::bench
