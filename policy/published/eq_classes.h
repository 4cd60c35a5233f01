// SPDX-License-Identifier: Apache-2.0
//
// EqClasses: the evicted neighbourhoods of h_DTR^eq, approximated by a union-find (Kirisame et al.,
// ICLR 2021, appendix C.2; DTREqClass in the published simulator).
//
// A storage that is evicted becomes a class worth its cost and takes the classes of its evicted
// neighbours in. One that returns subtracts its cost and leaves; classes never split, so that two
// groups that it alone connected stay one. Two quirks of the published code are kept: a storage
// whose operator has not run yet is a class worth nothing, which its first run makes negative if an
// eviction took it in meanwhile; and a return subtracts the cost of now, which an alias may have
// raised since the eviction. Values are not clamped.
//
// Threads and ownership as Heuristic.

#ifndef EBBTIDE_POLICY_PUBLISHED_EQ_CLASSES_H_
#define EBBTIDE_POLICY_PUBLISHED_EQ_CLASSES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/published/heuristic.h"

namespace ebbtide::published {

class EqClasses {
 public:
  // For storages 0 to below `storages`.
  explicit EqClasses(size_t storages);

  // Nanoseconds of all distinct classes among the storage's neighbours without memory.
  int64_t NeighbourCost(const MemoryView& view, StorageId id);

  void OnEvicted(const MemoryView& view, StorageId id);
  void OnReturned(const MemoryView& view, absl::Span<const StorageId> ids);

 private:
  // A class is a tree of nodes; its root has the value.
  struct Node {
    int32_t parent;  // itself for a root
    int64_t value = 0;
    int64_t counted = 0;  // the last sum in which it was counted
  };

  int32_t AddRoot(int64_t value);
  int32_t Find(int32_t node);

  std::vector<Node> nodes_;
  std::vector<int32_t> node_of_;  // for each storage; of no meaning for one in memory
  int64_t sums_ = 0;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_EQ_CLASSES_H_
