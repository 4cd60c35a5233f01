// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/mapping_table.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

CuMemAccessDesc ReadWrite(CuDevice device) {
  return {.location = {.type = kCuMemLocationTypeDevice, .id = device},
          .flags = kCuMemAccessReadWrite};
}

absl::Status Wrong(const char* what, CudaMappingTable::Span span) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", FormatBytes(span.size), " at 0x", absl::Hex(span.begin)));
}

uintptr_t End(CudaMappingTable::Span span) { return span.begin + span.size.count(); }

}  // namespace

CudaMappingTable::CudaMappingTable(const CudaDriver* driver, CuDevice device)
    : driver_(*driver), cu_(driver->functions()), access_({ReadWrite(device)}) {}

absl::Status CudaMappingTable::Map(uintptr_t address, const std::vector<CudaPiece>& pieces) {
  Span span{address, Bytes(0)};
  for (const CudaPiece& piece : pieces) span.size += piece.size;
  if (!Runs(span).empty()) return Wrong("there is memory behind a part of this", span);
  EBB_RETURN_IF_ERROR(DropStale(span));
  Span mapped{address, Bytes(0)};
  absl::Status status;
  for (const CudaPiece& piece : pieces) {
    status =
        driver_.Check(cu_.mem_map(End(mapped), piece.size.count(), 0, piece.handle, 0), "cuMemMap");
    if (!status.ok()) break;
    mapped.size += piece.size;
  }
  if (status.ok()) status = SetAccess(span, access_.data(), access_.size());
  if (status.ok()) {
    Record(address, pieces);
  } else if (mapped.size > Bytes(0)) {
    UnmapOrRemember(mapped);
  }
  return status;
}

absl::Status CudaMappingTable::Unmap(Span span, std::vector<CudaPiece>* pieces) {
  EBB_ASSIGN_OR_RETURN(const std::vector<CudaPiece> found, WholePieces(span));
  EBB_RETURN_IF_ERROR(DriverUnmap(span));
  Forget(span);
  pieces->insert(pieces->end(), found.begin(), found.end());
  return absl::OkStatus();
}

absl::Status CudaMappingTable::Move(Span from, uintptr_t to) {
  EBB_ASSIGN_OR_RETURN(const std::vector<CudaPiece> pieces, WholePieces(from));
  EBB_RETURN_IF_ERROR(Map(to, pieces));
  const absl::Status status = DriverUnmap(from);
  if (status.ok()) {
    Forget(from);
  } else {
    const Span target{to, from.size};
    Forget(target);
    UnmapOrRemember(target);
  }
  return status;
}

absl::Status CudaMappingTable::Clear(Span span, std::vector<CudaPiece>* pieces) {
  for (const Span& run : Runs(span)) EBB_RETURN_IF_ERROR(Unmap(run, pieces));
  return DropStale(span);
}

absl::Status CudaMappingTable::AddPeer(CuDevice device, const std::vector<Span>& spans) {
  for (const CuMemAccessDesc& access : access_) {
    if (access.location.id == device) return absl::OkStatus();
  }
  CuMemAccessDesc access = ReadWrite(device);
  std::vector<Span> runs;
  for (const Span& span : spans) {
    const std::vector<Span> more = Runs(span);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    const absl::Status status = SetAccess(runs[i], &access, 1);
    if (status.ok()) continue;
    // The device loses what it has got so far. If it keeps some of it, nobody has told it so.
    access.flags = kCuMemAccessNone;
    for (size_t j = 0; j < i; ++j) SetAccess(runs[j], &access, 1).IgnoreError();
    return status;
  }
  access_.push_back(access);
  return absl::OkStatus();
}

std::pair<CudaPiece*, uintptr_t> CudaMappingTable::Find(uintptr_t address) {
  auto it = pieces_.upper_bound(address);
  if (it == pieces_.begin()) return {nullptr, 0};
  --it;
  if (address >= it->first + it->second.size.count()) return {nullptr, 0};
  return {&it->second, it->first};
}

absl::StatusOr<std::vector<CudaPiece>> CudaMappingTable::WholePieces(Span span) const {
  std::vector<CudaPiece> pieces;
  uintptr_t at = span.begin;
  for (auto it = pieces_.find(at); it != pieces_.end() && it->first == at && at < End(span); ++it) {
    pieces.push_back(it->second);
    at += it->second.size.count();
  }
  if (at != End(span)) return Wrong("this is not made of whole pieces of memory", span);
  return pieces;
}

// The stretches of `span` that have memory behind them without a gap.
std::vector<CudaMappingTable::Span> CudaMappingTable::Runs(Span span) const {
  std::vector<Span> runs;
  auto it = pieces_.upper_bound(span.begin);
  if (it != pieces_.begin() && End({std::prev(it)->first, std::prev(it)->second.size}) > span.begin)
    --it;
  for (; it != pieces_.end() && it->first < End(span); ++it) {
    if (runs.empty() || End(runs.back()) != it->first) runs.push_back({it->first, Bytes(0)});
    runs.back().size += it->second.size;
  }
  return runs;
}

void CudaMappingTable::Record(uintptr_t address, const std::vector<CudaPiece>& pieces) {
  for (const CudaPiece& piece : pieces) {
    pieces_.emplace(address, piece);
    address += piece.size.count();
  }
}

void CudaMappingTable::Forget(Span span) {
  pieces_.erase(pieces_.lower_bound(span.begin), pieces_.lower_bound(End(span)));
}

absl::Status CudaMappingTable::SetAccess(Span span, const CuMemAccessDesc* access, size_t count) {
  return driver_.Check(cu_.mem_set_access(span.begin, span.size.count(), access, count),
                       "cuMemSetAccess");
}

absl::Status CudaMappingTable::DriverUnmap(Span span) {
  return driver_.Check(cu_.mem_unmap(span.begin, span.size.count()), "cuMemUnmap");
}

void CudaMappingTable::UnmapOrRemember(Span span) {
  if (!DriverUnmap(span).ok()) stale_.emplace(span.begin, span.size);
}

absl::Status CudaMappingTable::DropStale(Span span) {
  auto it = stale_.begin();  // Hardly ever more than none.
  while (it != stale_.end()) {
    const Span stale{it->first, it->second};
    if (End(stale) <= span.begin || stale.begin >= End(span)) {
      ++it;
      continue;
    }
    EBB_RETURN_IF_ERROR(DriverUnmap(stale));
    it = stale_.erase(it);
  }
  return absl::OkStatus();
}

}  // namespace ebbtide
