// SPDX-License-Identifier: Apache-2.0
//
// Regions: the exact evicted neighbourhoods of h_DTR and h_MSPS, cached as the published simulator
// caches them (uwsampl/dtr-prototype, simrd; Kirisame et al., ICLR 2021, appendix C).
//
// Each storage in memory has two regions, one towards its children and one towards its parents. A
// region's interior is what is not in memory and can be reached through what is not in memory; its
// frontier is what is in memory right behind that. An eviction joins the evicted storage's region
// to those of its frontier; a return rebuilds the regions next to it. A cached sum keeps the costs
// of the moment at which a storage came in, although an alias may have raised them since.
//
// Threads and ownership as Heuristic.

#ifndef EBBTIDE_POLICY_PUBLISHED_REGIONS_H_
#define EBBTIDE_POLICY_PUBLISHED_REGIONS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/published/heuristic.h"

namespace ebbtide::published {

class Regions {
 public:
  // For storages 0 to below `storages`.
  explicit Regions(size_t storages);

  // Nanoseconds of what is not in memory towards children, and towards parents, of a storage that
  // is in memory.
  int64_t DescendantCost(StorageId id) const { return regions_[kForward][id].cost; }
  int64_t AncestorCost(StorageId id) const { return regions_[kReverse][id].cost; }

  void OnEvicted(const MemoryView& view, StorageId id);
  void OnReturned(const MemoryView& view, absl::Span<const StorageId> ids);

 private:
  enum Direction { kForward, kReverse };

  struct Region {
    std::vector<StorageId> interior;
    std::vector<StorageId> frontier;
    int64_t cost = 0;  // of the interior
  };

  void Rebuild(const MemoryView& view, StorageId id, Direction direction);
  // Joins the region of `evicted` to that of `id`.
  void Absorb(const MemoryView& view, StorageId id, StorageId evicted, Direction direction);
  // Rebuilds the regions towards `direction` of all storages in the other frontiers of `ids`.
  void RebuildAround(const MemoryView& view, absl::Span<const StorageId> ids, Direction direction);

  void ClearMarks() { ++mark_; }
  // False if it was marked already.
  bool Mark(StorageId id);

  std::vector<Region> regions_[2];
  std::vector<int64_t> marks_;
  int64_t mark_ = 0;
  std::vector<StorageId> pending_;  // kept for its memory
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_REGIONS_H_
