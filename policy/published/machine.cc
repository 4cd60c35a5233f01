// SPDX-License-Identifier: Apache-2.0

#include "policy/published/machine.h"

#include <algorithm>
#include <limits>

namespace ebbtide::published {
namespace {

void AddOnce(StorageId id, std::vector<StorageId>* to) {
  if (std::find(to->begin(), to->end(), id) == to->end()) to->push_back(id);
}

}  // namespace

Machine::Machine(const Schedule* schedule, Heuristic* heuristic, int64_t budget_bytes)
    : schedule_(*schedule),
      heuristic_(*heuristic),
      budget_bytes_(budget_bytes),
      states_(schedule->storages.size()),
      defined_(schedule->tensors.size(), false),
      pool_(schedule->storages.size()) {
  view_.storages.resize(schedule->storages.size());
  for (size_t i = 0; i < schedule->storages.size(); ++i) {
    view_.storages[i].bytes = schedule->storages[i].bytes;
  }
}

void Machine::Connect(StorageId parent, StorageId child) {
  if (parent == child) return;
  std::vector<StorageId>& parents = view_.storages[child].parents;
  if (std::find(parents.begin(), parents.end(), parent) != parents.end()) return;
  parents.push_back(parent);
  view_.storages[parent].children.push_back(child);
}

void Machine::Link(OpId id) {
  const Op& op = schedule_.ops[id];
  std::vector<StorageId> made;
  for (int32_t i = 0; i < op.result_count; ++i) {
    const StorageId storage = StorageOf(op.first_result + i);
    ++states_[storage].holds;
    AddOnce(storage, &made);
  }
  for (const StorageId storage : made) {
    view_.storages[storage].cost += op.cost;
    for (const TensorId argument : op.arguments) Connect(StorageOf(argument), storage);
  }
}

void Machine::Lock(TensorId id) {
  const StorageId storage = StorageOf(id);
  if (states_[storage].locks++ == 0) pool_.Remove(storage);
}

void Machine::Unlock(TensorId id) {
  const StorageId storage = StorageOf(id);
  if (--states_[storage].locks == 0) pool_.Append(storage);
}

void Machine::Pin(TensorId id) {
  State& state = states_[StorageOf(id)];
  if (state.pinned) return;
  Lock(id);
  state.pinned = true;
}

void Machine::Release(TensorId id) {
  const StorageId storage = StorageOf(id);
  State& state = states_[storage];
  if (--state.holds == 0 && view_.storages[storage].in_memory && !state.pinned) Evict(storage);
}

StorageId Machine::ChooseVictim() {
  StorageId victim = pool_.end();
  double least = std::numeric_limits<double>::infinity();
  for (StorageId id = pool_.first(); id != pool_.end(); id = pool_.Next(id)) {
    ++evaluations_;
    const double value = heuristic_.Value(view_, id).Rounded();
    // Of equals the last one; infinity is taken if there is nothing better.
    if (value <= least) {
      least = value;
      victim = id;
    }
    // As published, the scan ends here even where a value below zero is still ahead or behind.
    if (value == 0) break;
  }
  return victim;
}

bool Machine::MakeRoom(int64_t bytes) {
  while (used_bytes_ + bytes > budget_bytes_) {
    const StorageId victim = ChooseVictim();
    if (victim == pool_.end()) return false;
    Evict(victim);
  }
  return true;
}

void Machine::Evict(StorageId id) {
  view_.storages[id].in_memory = false;
  used_bytes_ -= view_.storages[id].bytes;
  pool_.Remove(id);
  for (const TensorId tensor : schedule_.storages[id].tensors) defined_[tensor] = false;
  heuristic_.OnEvicted(view_, id);
}

void Machine::Run(TensorId wanted, bool is_first) {
  const Op& op = schedule_.ops[schedule_.tensors[wanted].op];
  view_.clock += op.cost;
  if (!is_first) rebuild_cost_ += op.cost;
  used_bytes_ += op.result_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);

  returned_.clear();
  const auto define = [&](TensorId result) {
    if (defined_[result]) {
      used_bytes_ -= schedule_.tensors[result].bytes;
      return;
    }
    defined_[result] = true;
    StorageView& storage = view_.storages[StorageOf(result)];
    if (storage.in_memory) return;  // an alias
    storage.in_memory = true;
    returned_.push_back(StorageOf(result));
  };
  // The wanted result enters the pool last, behind those that were made on the way.
  for (TensorId result = op.first_result; result < op.first_result + op.result_count; ++result) {
    if (result != wanted) define(result);
  }
  define(wanted);
  for (const StorageId id : returned_) pool_.Append(id);
  heuristic_.OnReturned(view_, returned_);
}

}  // namespace ebbtide::published
