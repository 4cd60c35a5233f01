// SPDX-License-Identifier: Apache-2.0

#include "allocator/piece_map.h"

#include <iterator>

#include "base/check.h"

namespace ebbtide {

PieceMap::Map::const_iterator PieceMap::FirstEndingAfter(uintptr_t address) const {
  auto it = runs_.upper_bound(address);
  if (it != runs_.begin() && std::prev(it)->second.end > address) --it;
  return it;
}

bool PieceMap::HasAny(uintptr_t begin, uintptr_t end) const {
  const auto it = FirstEndingAfter(begin);
  return it != runs_.end() && it->first < end;
}

bool PieceMap::HasAll(uintptr_t begin, uintptr_t end) const {
  uintptr_t reached = begin;
  for (auto it = FirstEndingAfter(begin); reached < end; ++it) {
    if (it == runs_.end() || it->first > reached) return false;
    reached = it->second.end;
  }
  return true;
}

bool PieceMap::Cuts(uintptr_t border) const {
  const auto it = FirstEndingAfter(border);
  if (it == runs_.end() || it->first >= border) return false;
  return (border - it->first) % it->second.piece != 0;
}

void PieceMap::Add(const Run& run) {
  EBB_CHECK(run.begin < run.end && (run.end - run.begin) % run.piece == 0)
      << run.end - run.begin << " bytes in pieces of " << run.piece;
  EBB_CHECK(!HasAny(run.begin, run.end)) << "memory at " << run.begin << " is there already";
  runs_.emplace(run.begin, Rest{run.end, run.piece});
}

// Makes a run that lies across `border` two.
void PieceMap::Split(uintptr_t border) {
  EBB_CHECK(!Cuts(border)) << "a piece lies across " << border;
  const auto it = runs_.lower_bound(border);
  if (it == runs_.begin()) return;
  Rest& left = std::prev(it)->second;
  if (left.end <= border) return;
  runs_.emplace_hint(it, border, left);
  left.end = border;
}

std::vector<PieceMap::Run> PieceMap::Take(uintptr_t begin, uintptr_t end) {
  Split(begin);
  Split(end);
  std::vector<Run> taken;
  auto it = runs_.lower_bound(begin);
  while (it != runs_.end() && it->first < end) {
    taken.push_back({it->first, it->second.end, it->second.piece});
    it = runs_.erase(it);
  }
  return taken;
}

}  // namespace ebbtide
