// SPDX-License-Identifier: Apache-2.0
//
// ViewFixture: storages for the tests of what heuristics remember, connected as the test says and
// all in memory at first.
//
// Threads: one. Ownership: numbers only.

#ifndef EBBTIDE_TESTS_POLICY_PUBLISHED_VIEW_FIXTURE_H_
#define EBBTIDE_TESTS_POLICY_PUBLISHED_VIEW_FIXTURE_H_

#include <cstdint>
#include <vector>

#include "policy/published/heuristic.h"

namespace ebbtide::published {

class ViewFixture {
 public:
  // One storage for each cost.
  explicit ViewFixture(const std::vector<int64_t>& costs) {
    for (const int64_t cost : costs) {
      StorageView& storage = view_.storages.emplace_back();
      storage.bytes = 1;
      storage.cost = cost;
      storage.in_memory = true;
    }
  }

  void Connect(StorageId parent, StorageId child) {
    view_.storages[parent].children.push_back(child);
    view_.storages[child].parents.push_back(parent);
  }
  // Each is made from the one before it.
  void Chain(const std::vector<StorageId>& ids) {
    for (size_t i = 1; i < ids.size(); ++i) Connect(ids[i - 1], ids[i]);
  }

  template <typename Index>
  void Evict(StorageId id, Index* index) {
    view_.storages[id].in_memory = false;
    index->OnEvicted(view_, id);
  }
  template <typename Index>
  void Return(StorageId id, Index* index) {
    view_.storages[id].in_memory = true;
    index->OnReturned(view_, {&id, 1});
  }

  MemoryView& view() { return view_; }
  StorageView& storage(StorageId id) { return view_.storages[id]; }

 private:
  MemoryView view_;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_TESTS_POLICY_PUBLISHED_VIEW_FIXTURE_H_
