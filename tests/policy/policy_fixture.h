// SPDX-License-Identifier: Apache-2.0
//
// PolicyFixture: a graph of storages without bytes in front of a policy, for the policies' tests.
//
// Time is whatever the test says, and addresses are numbers that nobody looks behind. For one
// thread; owns the policy and the graph.

#ifndef EBBTIDE_TESTS_POLICY_POLICY_FIXTURE_H_
#define EBBTIDE_TESTS_POLICY_POLICY_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "policy/eviction_policy.h"
#include "tracker/graph.h"

namespace ebbtide {

class PolicyFixture {
 public:
  explicit PolicyFixture(std::unique_ptr<EvictionPolicy> policy)
      : policy_(std::move(policy)), graph_(policy_.get()) {}

  EvictionPolicy& policy() { return *policy_; }
  Graph& graph() { return graph_; }

  Storage* Source(int64_t bytes) {
    return graph_.AddStorage(nullptr, Bytes(bytes), Address());
  }

  // A storage whose value a call of duration `cost` made from `inputs` at time `now`.
  Storage* Made(const std::vector<Storage*>& inputs, int64_t bytes, int64_t cost, int64_t now) {
    Storage* storage = Source(bytes);
    graph_.Read(storage->value, Nanos(now));
    std::vector<Graph::Input> reads;
    for (Storage* input : inputs) reads.push_back({input->value, false});
    const Graph::Output output{storage->value, -1};
    graph_.Record(std::make_unique<Nothing>(), reads, {&output, 1}, Nanos(cost));
    return storage;
  }

  void Evict(Value* value) { graph_.TakeMemory(value); }
  void Return(Value* value) { graph_.GiveMemory(value, Address()); }
  void Drop(Storage* storage) {
    graph_.DropStorage(storage);
    graph_.TakeGarbage();
  }

 private:
  class Nothing : public Operation {
   public:
    absl::string_view name() const override { return "nothing"; }
  };

  void* Address() { return reinterpret_cast<void*>(next_address_ += 64); }

  uintptr_t next_address_ = 0x1000;
  const std::unique_ptr<EvictionPolicy> policy_;
  Graph graph_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_POLICY_POLICY_FIXTURE_H_
