// SPDX-License-Identifier: Apache-2.0

#include "policy/published/regions.h"

#include <algorithm>

namespace ebbtide::published {

Regions::Regions(size_t storages) : marks_(storages, 0) {
  for (std::vector<Region>& regions : regions_) regions.resize(storages);
}

bool Regions::Mark(StorageId id) {
  if (marks_[id] == mark_) return false;
  marks_[id] = mark_;
  return true;
}

void Regions::Rebuild(const MemoryView& view, StorageId id, Direction direction) {
  Region& region = regions_[direction][id];
  region.interior.clear();
  region.frontier.clear();
  region.cost = 0;
  ClearMarks();
  Mark(id);
  pending_.assign(1, id);
  while (!pending_.empty()) {
    const StorageView& from = view.storages[pending_.back()];
    pending_.pop_back();
    for (const StorageId next : direction == kForward ? from.children : from.parents) {
      if (!Mark(next)) continue;
      if (view.storages[next].in_memory) {
        region.frontier.push_back(next);
      } else {
        region.interior.push_back(next);
        region.cost += view.storages[next].cost;
        pending_.push_back(next);
      }
    }
  }
}

void Regions::Absorb(const MemoryView& view, StorageId id, StorageId evicted, Direction direction) {
  Region& region = regions_[direction][id];
  const Region& joined = regions_[direction][evicted];
  std::erase(region.frontier, evicted);
  ClearMarks();
  for (const StorageId each : region.frontier) Mark(each);
  for (const StorageId each : joined.frontier) {
    if (Mark(each)) region.frontier.push_back(each);
  }
  ClearMarks();
  for (const StorageId each : region.interior) Mark(each);
  const auto add = [&](StorageId each) {
    if (!Mark(each)) return;
    region.interior.push_back(each);
    region.cost += view.storages[each].cost;
  };
  for (const StorageId each : joined.interior) add(each);
  add(evicted);
}

void Regions::OnEvicted(const MemoryView& view, StorageId id) {
  Region& forward = regions_[kForward][id];
  Region& reverse = regions_[kReverse][id];
  // Storages that alias more than one argument can make circles; none may absorb itself.
  for (const StorageId parent : reverse.frontier) {
    if (parent != id) Absorb(view, parent, id, kForward);
  }
  for (const StorageId child : forward.frontier) {
    if (child != id) Absorb(view, child, id, kReverse);
  }
  forward = Region();
  reverse = Region();
}

void Regions::RebuildAround(const MemoryView& view, absl::Span<const StorageId> ids,
                            Direction direction) {
  const Direction other = direction == kForward ? kReverse : kForward;
  ClearMarks();
  std::vector<StorageId> around;
  for (const StorageId id : ids) {
    for (const StorageId each : regions_[other][id].frontier) {
      if (Mark(each)) around.push_back(each);
    }
  }
  for (const StorageId each : around) Rebuild(view, each, direction);
}

void Regions::OnReturned(const MemoryView& view, absl::Span<const StorageId> ids) {
  for (const StorageId id : ids) {
    Rebuild(view, id, kForward);
    Rebuild(view, id, kReverse);
  }
  RebuildAround(view, ids, kForward);
  RebuildAround(view, ids, kReverse);
}

}  // namespace ebbtide::published
