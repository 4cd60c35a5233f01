// SPDX-License-Identifier: Apache-2.0

#include "policy/ordered_policy.h"

#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace ebbtide {
namespace {

int64_t LruKey(const Value& value) { return value.last_access.count(); }
int64_t SizeKey(const Value& value) { return -value.bytes.count(); }

class OrderedPolicy : public CandidatePolicy {
 public:
  using Key = int64_t (*)(const Value&);

  OrderedPolicy(absl::string_view name, Key key, Bytes min_bytes)
      : CandidatePolicy(min_bytes), name_(name), key_(key) {}

  absl::string_view name() const override { return name_; }

  Value* ChooseVictim(Nanos) override {
    for (const Entry& entry : order_) {
      if (entry.value->pins == 0) return entry.value;
    }
    return nullptr;
  }

  void OnRead(Value* value) override {
    if (!IsCandidate(*value)) return;
    OnRemoved(value);
    OnAdded(value);
  }

 protected:
  void OnAdded(Value* value) override {
    const int64_t key = key_(*value);
    keys_[value] = key;
    order_.insert({key, value->id, value});
  }

  void OnRemoved(Value* value) override {
    const auto it = keys_.find(value);
    order_.erase({it->second, value->id, value});
    keys_.erase(it);
  }

 private:
  struct Entry {
    int64_t key;
    uint64_t id;  // makes the order total and the same in every run
    Value* value;
    bool operator<(const Entry& other) const {
      return std::pair(key, id) < std::pair(other.key, other.id);
    }
  };

  const absl::string_view name_;
  const Key key_;
  std::set<Entry> order_;
  // The key under which a value stands in order_: its last access has moved on by the time it is
  // looked for.
  absl::flat_hash_map<Value*, int64_t> keys_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy(Bytes min_bytes) {
  return std::make_unique<OrderedPolicy>("lru", &LruKey, min_bytes);
}

std::unique_ptr<EvictionPolicy> MakeSizePolicy(Bytes min_bytes) {
  return std::make_unique<OrderedPolicy>("size", &SizeKey, min_bytes);
}

}  // namespace ebbtide
