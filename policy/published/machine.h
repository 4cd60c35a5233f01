// SPDX-License-Identifier: Apache-2.0
//
// Machine: the memory and the clock of the published simulator. It knows which tensors are defined,
// which storages are in memory, locked, pinned and held, and carries out what one operator does to
// them; in which order operators run is PublishedSimulator's business.
//
// Memory and time are numbers: running an operator adds its cost to the clock and the bytes of all
// its results to what is used, at once. A storage that is in memory and not locked may be evicted.
//
// Threads: one at a time. Ownership: the schedule and the heuristic are the caller's and must
// outlive the machine. The heuristic is what varies (policy/published/heuristic.h).

#ifndef EBBTIDE_POLICY_PUBLISHED_MACHINE_H_
#define EBBTIDE_POLICY_PUBLISHED_MACHINE_H_

#include <cstdint>
#include <vector>

#include "policy/published/evictable_pool.h"
#include "policy/published/heuristic.h"
#include "policy/published/schedule.h"

namespace ebbtide::published {

class Machine {
 public:
  Machine(const Schedule* schedule, Heuristic* heuristic, int64_t budget_bytes);

  // Makes an operator's results known: not defined, held once each, neighbours of its arguments.
  // From here on their storages look evicted to the heuristic.
  void Link(OpId id);

  bool IsDefined(TensorId id) const { return defined_[id]; }

  // Sets the last access of the tensor's storage to now.
  void Touch(TensorId id) { view_.storages[StorageOf(id)].last_access = view_.clock; }

  // While it is locked a storage stays in memory. Counted. REQUIRES: the tensor is defined.
  void Lock(TensorId id);
  // The last unlock puts the storage at the pool's end.
  void Unlock(TensorId id);
  // Locks the storage for good, once. REQUIRES: the tensor is defined.
  void Pin(TensorId id);

  void Hold(TensorId id) { ++states_[StorageOf(id)].holds; }
  // Eager eviction: when the last hold ends, a storage that is in memory and not pinned leaves at
  // once. A later rebuild brings it back like any other, and then it stays until it is chosen.
  void Release(TensorId id);

  // Evicts until `bytes` more fit into the budget. False: nothing is left to evict.
  bool MakeRoom(int64_t bytes);

  // Runs the operator of `wanted`, which must not be defined while its arguments are, for the first
  // time or again. Results that are in memory already are kept, and the new copy is dropped after
  // it has counted for the peak.
  void Run(TensorId wanted, bool is_first);

  int64_t clock() const { return view_.clock; }           // nanoseconds; starts at 1
  int64_t rebuild_cost() const { return rebuild_cost_; }  // nanoseconds of runs but the first
  int64_t peak_bytes() const { return peak_bytes_; }      // after each run, copies included
  int64_t evaluations() const { return evaluations_; }    // storages valued for decisions

 private:
  struct State {
    int32_t locks = 0;
    int32_t holds = 0;
    bool pinned = false;
  };

  StorageId StorageOf(TensorId id) const { return schedule_.tensors[id].storage; }
  void Connect(StorageId parent, StorageId child);
  // The victim by the heuristic; the pool's end if the pool is empty.
  StorageId ChooseVictim();
  void Evict(StorageId id);

  const Schedule& schedule_;
  Heuristic& heuristic_;
  const int64_t budget_bytes_;
  MemoryView view_;
  std::vector<State> states_;  // for each storage
  std::vector<bool> defined_;  // for each tensor
  EvictablePool pool_;
  std::vector<StorageId> returned_;  // kept for its memory
  int64_t used_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t rebuild_cost_ = 0;
  int64_t evaluations_ = 0;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_MACHINE_H_
