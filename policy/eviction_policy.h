// SPDX-License-Identifier: Apache-2.0
//
// EvictionPolicy: says which value should leave next. One of the four variation points of Ebbtide.
//
// A policy follows the graph as its listener and keeps whatever index it needs. It is a pure
// decision: it never evicts, never touches bytes, never calls back. A value is a candidate while it
// has memory and a call that can make it again, is at least `min_bytes` long and its storage has
// not escaped; of the candidates, those that are pinned at the moment of the question must be
// passed over.
//
// Threads: called under the runtime's mutex only. Ownership: the runtime owns the policy; the
// policy owns nothing of the graph and must forget a value in OnForgotten.
//
// To add one: derive from CandidatePolicy, give it a name in policy/registry.cc, and add it to
// tests/policy/policy_conformance_test.cc, which every policy must pass.

#ifndef EBBTIDE_POLICY_EVICTION_POLICY_H_
#define EBBTIDE_POLICY_EVICTION_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "tracker/graph.h"

namespace ebbtide {

// What scores are made of, in nanoseconds and never zero: a call too short to measure is not free,
// and what was read just now is not infinitely dear.
inline double CostOf(const Call& call) { return static_cast<double>(call.cost.count()) + 1.0; }
inline double Staleness(Nanos last_access, Nanos now) {
  return static_cast<double>(std::max<int64_t>((now - last_access).count(), 1));
}

class EvictionPolicy : public ValueListener {
 public:
  // As users write it in --policy.
  virtual absl::string_view name() const = 0;

  // The candidate to evict next, at time `now` (the clock of Graph::Read); null if there is none
  // that is not pinned.
  virtual Value* ChooseVictim(Nanos now) = 0;

  // Candidates now, pinned ones included, in no particular order, and their total size. The span is
  // valid until the next change.
  virtual absl::Span<Value* const> candidates() const = 0;
  virtual Bytes candidate_bytes() const = 0;

  // The storage of `value` escaped or was found not to be evictable: it is no candidate any more.
  virtual void Exclude(Value* value) = 0;
};

// Keeps the set of candidates; derived classes add an order.
class CandidatePolicy : public EvictionPolicy {
 public:
  explicit CandidatePolicy(Bytes min_bytes) : min_bytes_(min_bytes) {}

  absl::Span<Value* const> candidates() const override { return candidates_; }
  Bytes candidate_bytes() const override { return candidate_bytes_; }
  void Exclude(Value* value) override { Remove(value); }

  void OnMemoryGained(Value* value) override { Update(value); }
  void OnMemoryLost(Value* value) override { Update(value); }
  void OnRecorded(Value* value) override { Update(value); }
  void OnSettled(Value* value) override { Update(value); }
  void OnRead(Value*) override {}
  void OnForgotten(Value* value) override { Remove(value); }

 protected:
  static bool IsCandidate(const Value& value) { return value.policy_index >= 0; }

  // Called after the value joined, and before it leaves, the candidates.
  virtual void OnAdded(Value*) {}
  virtual void OnRemoved(Value*) {}

 private:
  bool Qualifies(const Value& value) const;
  void Update(Value* value);
  void Remove(Value* value);

  const Bytes min_bytes_;
  // value->policy_index is the value's place here.
  std::vector<Value*> candidates_;
  Bytes candidate_bytes_{0};
};

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_EVICTION_POLICY_H_
