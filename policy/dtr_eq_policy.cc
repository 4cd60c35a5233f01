// SPDX-License-Identifier: Apache-2.0

#include "policy/dtr_eq_policy.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

namespace ebbtide {
namespace {

// A set of evicted values. Freed when neither a value nor another component points to it.
struct Component {
  Component* parent = nullptr;
  double cost = 0;
  // What the value that this node was made for added to the cost.
  double own_cost = 0;
  int references = 0;
  int rank = 0;
};

Component* Root(Component* component) {
  while (component->parent != nullptr) {
    // Path halving; references move along so that passed-over components can be freed.
    if (Component* up = component->parent->parent; up != nullptr) {
      Component* skipped = component->parent;
      component->parent = up;
      ++up->references;
      if (--skipped->references == 0) {
        --skipped->parent->references;
        delete skipped;
      }
    }
    component = component->parent;
  }
  return component;
}

void Release(Component* component) {
  while (component != nullptr && --component->references == 0) {
    Component* parent = component->parent;
    delete component;
    component = parent;
  }
}

// Returns the root of the union.
Component* Unite(Component* a, Component* b) {
  a = Root(a);
  b = Root(b);
  if (a == b) return a;
  if (a->rank < b->rank) std::swap(a, b);
  if (a->rank == b->rank) ++a->rank;
  b->parent = a;
  ++a->references;
  a->cost += b->cost;
  return a;
}

Component* NodeOf(const Value& value) { return static_cast<Component*>(value.policy_node); }

double CostOf(const Value& value) {
  // A value without a call that lost its memory cannot come back; it weighs nothing.
  return value.is_source() ? 0.0 : CostOf(*value.call);
}

// Calls `visit` with every value next to `value` in the graph.
template <typename Visit>
void ForEachNeighbour(const Value& value, Visit visit) {
  if (!value.is_source()) {
    for (const Use& use : value.call->inputs) visit(*use.value);
  }
  for (const Use* use = value.uses; use != nullptr; use = use->next) {
    for (const Call::Output& output : use->call->outputs) {
      if (output.value != nullptr) visit(*output.value);
    }
  }
}

class DtrEqPolicy : public CandidatePolicy {
 public:
  explicit DtrEqPolicy(Bytes min_bytes) : CandidatePolicy(min_bytes) {}

  absl::string_view name() const override { return "dtr-eq"; }

  Value* ChooseVictim(Nanos now) override {
    Value* best = nullptr;
    double best_score = 0;
    for (Value* value : candidates()) {
      if (value->pins > 0) continue;
      const double score = Score(*value, now);
      if (best == nullptr || score < best_score ||
          (score == best_score && value->id < best->id)) {
        best = value;
        best_score = score;
      }
    }
    return best;
  }

  void OnMemoryLost(Value* value) override {
    CandidatePolicy::OnMemoryLost(value);
    if (value->policy_node != nullptr) return;
    auto* node = new Component;
    node->own_cost = CostOf(*value);
    node->cost = node->own_cost;
    node->references = 1;
    value->policy_node = node;
    ForEachNeighbour(*value, [&](const Value& neighbour) {
      if (neighbour.policy_node != nullptr) Unite(node, NodeOf(neighbour));
    });
  }

  void OnMemoryGained(Value* value) override {
    Leave(value);
    CandidatePolicy::OnMemoryGained(value);
  }

  void OnForgotten(Value* value) override {
    Leave(value);
    CandidatePolicy::OnForgotten(value);
  }

 private:
  static double Score(const Value& value, Nanos now) {
    double cost = CostOf(value);
    absl::InlinedVector<Component*, 8> counted;
    ForEachNeighbour(value, [&](const Value& neighbour) {
      if (neighbour.policy_node == nullptr) return;
      Component* root = Root(NodeOf(neighbour));
      if (std::find(counted.begin(), counted.end(), root) != counted.end()) return;
      counted.push_back(root);
      cost += std::max(root->cost, 0.0);
    });
    return cost / (static_cast<double>(value.bytes.count()) * Staleness(value.last_access, now));
  }

  static void Leave(Value* value) {
    Component* node = NodeOf(*value);
    if (node == nullptr) return;
    Root(node)->cost -= node->own_cost;
    value->policy_node = nullptr;
    Release(node);
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeDtrEqPolicy(Bytes min_bytes) {
  return std::make_unique<DtrEqPolicy>(min_bytes);
}

}  // namespace ebbtide
