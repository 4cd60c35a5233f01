// SPDX-License-Identifier: Apache-2.0
//
// Heuristic: what the published simulator evicts first. It gives every storage in memory a value;
// the storage with the least one leaves.
//
// A heuristic sees the program's storages as MemoryView shows them and is told when one leaves or
// returns, so that it can keep what it needs. Storages of operators that have been linked, but have
// not run yet, look like evicted ones; those of later operators have no neighbours.
//
// Threads: one simulation owns a heuristic and calls it on one thread. Ownership: the view belongs
// to the simulation. To add one: derive from Heuristic, put the formula into
// policy/published/formulas.h, and add the name in policy/published/heuristics.cc.

#ifndef EBBTIDE_POLICY_PUBLISHED_HEURISTIC_H_
#define EBBTIDE_POLICY_PUBLISHED_HEURISTIC_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/published/quotient.h"
#include "policy/published/schedule.h"

namespace ebbtide::published {

struct StorageView {
  int64_t bytes = 0;
  // Nanoseconds of all operators that made one of the storage's tensors, aliases included, each
  // operator once and whole, however many results it has. Grows when an alias is linked.
  int64_t cost = 0;
  int64_t last_access = 0;  // clock of the simulation
  bool in_memory = false;
  // The storages that operators read to make this one's tensors, and those that operators make from
  // this one's tensors. Each once, never the storage itself.
  std::vector<StorageId> parents;
  std::vector<StorageId> children;
};

struct MemoryView {
  int64_t clock = 1;  // nanoseconds
  std::vector<StorageView> storages;

  // Nanoseconds since the storage was last read, made or asked for.
  int64_t Staleness(StorageId id) const { return clock - storages[id].last_access; }
};

class Heuristic {
 public:
  virtual ~Heuristic() = default;

  // The value of a storage in memory. Not const, because looking may tidy up an index.
  virtual Quotient Value(const MemoryView& view, StorageId id) = 0;

  // The storage has just lost its memory.
  virtual void OnEvicted(const MemoryView&, StorageId) {}

  // An operator ran, and these storages are in memory now that were not before it.
  virtual void OnReturned(const MemoryView&, absl::Span<const StorageId>) {}
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_HEURISTIC_H_
