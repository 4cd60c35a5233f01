// SPDX-License-Identifier: Apache-2.0

#include "policy/published/eq_classes.h"

namespace ebbtide::published {

EqClasses::EqClasses(size_t storages) {
  for (size_t i = 0; i < storages; ++i) node_of_.push_back(AddRoot(0));
}

int32_t EqClasses::AddRoot(int64_t value) {
  const auto node = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({node, value});
  return node;
}

int32_t EqClasses::Find(int32_t node) {
  int32_t root = node;
  while (nodes_[root].parent != root) root = nodes_[root].parent;
  while (node != root) {
    const int32_t above = nodes_[node].parent;
    nodes_[node].parent = root;
    node = above;
  }
  return root;
}

int64_t EqClasses::NeighbourCost(const MemoryView& view, StorageId id) {
  ++sums_;
  int64_t sum = 0;
  const StorageView& storage = view.storages[id];
  for (const auto* neighbours : {&storage.parents, &storage.children}) {
    for (const StorageId neighbour : *neighbours) {
      if (view.storages[neighbour].in_memory) continue;
      Node& root = nodes_[Find(node_of_[neighbour])];
      if (root.counted == sums_) continue;
      root.counted = sums_;
      sum += root.value;
    }
  }
  return sum;
}

void EqClasses::OnEvicted(const MemoryView& view, StorageId id) {
  const StorageView& storage = view.storages[id];
  const int32_t own = AddRoot(storage.cost);
  node_of_[id] = own;
  for (const auto* neighbours : {&storage.parents, &storage.children}) {
    for (const StorageId neighbour : *neighbours) {
      if (view.storages[neighbour].in_memory) continue;
      const int32_t other = Find(node_of_[neighbour]);
      if (other == own) continue;
      nodes_[other].parent = own;
      nodes_[own].value += nodes_[other].value;
    }
  }
}

void EqClasses::OnReturned(const MemoryView& view, absl::Span<const StorageId> ids) {
  for (const StorageId id : ids) nodes_[Find(node_of_[id])].value -= view.storages[id].cost;
}

}  // namespace ebbtide::published
