// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/access_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ebbtide::hollow {
namespace {

bool IsBefore(const Toucher& toucher, const Clock& clock) {
  const auto known = clock.find(toucher.stream);
  return known != clock.end() && known->second >= toucher.number;
}

void NoteReader(const Toucher& toucher, std::vector<Toucher>* readers) {
  for (Toucher& reader : *readers) {
    if (reader.stream != toucher.stream) continue;
    reader = toucher;
    return;
  }
  readers->push_back(toucher);
}

}  // namespace

void Merge(const Clock& other, Clock* clock) {
  for (const auto& [stream, number] : other) {
    uint64_t& known = (*clock)[stream];
    known = std::max(known, number);
  }
}

std::optional<Toucher> AccessHistory::Note(const Touch& touch, const Toucher& toucher,
                                           const Clock& clock) {
  const uintptr_t end = touch.start + touch.bytes;
  std::optional<Toucher> conflict;
  const auto [first, last] = Split(touch.start, end);
  for (auto cell = first; cell != last; ++cell) {
    const std::optional<Toucher>& writer = cell->second.writer;
    if (writer.has_value() && !IsBefore(*writer, clock)) conflict = writer;
    if (!touch.writes) continue;
    for (const Toucher& reader : cell->second.readers) {
      if (!IsBefore(reader, clock)) conflict = reader;
    }
  }
  if (touch.writes) {
    cells_.erase(first, last);
    cells_[touch.start] = {.end = end, .writer = toucher, .readers = {}};
    return conflict;
  }
  uintptr_t reached = touch.start;
  for (auto cell = first; cell != last; ++cell) {
    NoteReader(toucher, &cell->second.readers);
    if (cell->first > reached) {
      cells_[reached] = {.end = cell->first, .writer = std::nullopt, .readers = {toucher}};
    }
    reached = cell->second.end;
  }
  if (reached < end) cells_[reached] = {.end = end, .writer = std::nullopt, .readers = {toucher}};
  return conflict;
}

std::optional<Toucher> AccessHistory::FindUnordered(uintptr_t start, size_t bytes,
                                                    const Clock& clock) const {
  auto cell = cells_.upper_bound(start);
  if (cell != cells_.begin()) --cell;
  for (; cell != cells_.end() && cell->first < start + bytes; ++cell) {
    if (cell->second.end <= start) continue;
    const std::optional<Toucher>& writer = cell->second.writer;
    if (writer.has_value() && !IsBefore(*writer, clock)) return writer;
    for (const Toucher& reader : cell->second.readers) {
      if (!IsBefore(reader, clock)) return reader;
    }
  }
  return std::nullopt;
}

void AccessHistory::Forget(uintptr_t start, size_t bytes) {
  const auto [first, last] = Split(start, start + bytes);
  cells_.erase(first, last);
}

std::pair<AccessHistory::Cells::iterator, AccessHistory::Cells::iterator> AccessHistory::Split(
    uintptr_t start, uintptr_t end) {
  for (uintptr_t edge : {start, end}) {
    auto cell = cells_.upper_bound(edge);
    if (cell == cells_.begin()) continue;
    --cell;
    if (cell->first == edge || cell->second.end <= edge) continue;
    Cell rest = cell->second;
    cell->second.end = edge;
    cells_.emplace(edge, std::move(rest));
  }
  return {cells_.lower_bound(start), cells_.lower_bound(end)};
}

}  // namespace ebbtide::hollow
