// SPDX-License-Identifier: Apache-2.0

#include "policy/published/heuristics.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/published/eq_classes.h"
#include "policy/published/formulas.h"
#include "policy/published/regions.h"

namespace ebbtide::published {
namespace {

// The three that look at nothing but the storage itself.
class Lru : public Heuristic {
 public:
  explicit Lru(size_t) {}
  Quotient Value(const MemoryView& view, StorageId id) override {
    return LruValue(view.storages[id].last_access);
  }
};

class LargestStorage : public Heuristic {
 public:
  explicit LargestStorage(size_t) {}
  Quotient Value(const MemoryView& view, StorageId id) override {
    return LargestStorageValue(view.storages[id].bytes);
  }
};

class DtrLocal : public Heuristic {
 public:
  explicit DtrLocal(size_t) {}
  Quotient Value(const MemoryView& view, StorageId id) override {
    const StorageView& storage = view.storages[id];
    return DtrLocalValue(storage.cost, storage.bytes, view.Staleness(id));
  }
};

class DtrEqClass : public Heuristic {
 public:
  explicit DtrEqClass(size_t storages) : classes_(storages) {}
  Quotient Value(const MemoryView& view, StorageId id) override {
    const StorageView& storage = view.storages[id];
    return DtrEqClassValue(storage.cost, classes_.NeighbourCost(view, id), storage.bytes,
                           view.Staleness(id));
  }
  void OnEvicted(const MemoryView& view, StorageId id) override { classes_.OnEvicted(view, id); }
  void OnReturned(const MemoryView& view, absl::Span<const StorageId> ids) override {
    classes_.OnReturned(view, ids);
  }

 private:
  EqClasses classes_;
};

class RegionHeuristic : public Heuristic {
 public:
  explicit RegionHeuristic(size_t storages) : regions_(storages) {}
  void OnEvicted(const MemoryView& view, StorageId id) override { regions_.OnEvicted(view, id); }
  void OnReturned(const MemoryView& view, absl::Span<const StorageId> ids) override {
    regions_.OnReturned(view, ids);
  }

 protected:
  const Regions& regions() const { return regions_; }

 private:
  Regions regions_;
};

class Dtr : public RegionHeuristic {
 public:
  using RegionHeuristic::RegionHeuristic;
  Quotient Value(const MemoryView& view, StorageId id) override {
    const StorageView& storage = view.storages[id];
    return DtrValue(storage.cost, regions().DescendantCost(id), regions().AncestorCost(id),
                    storage.bytes, view.Staleness(id));
  }
};

class Msps : public RegionHeuristic {
 public:
  using RegionHeuristic::RegionHeuristic;
  Quotient Value(const MemoryView& view, StorageId id) override {
    const StorageView& storage = view.storages[id];
    return MspsValue(storage.cost, regions().AncestorCost(id), storage.bytes);
  }
};

template <typename T>
std::unique_ptr<Heuristic> Make(size_t storages) {
  return std::make_unique<T>(storages);
}

struct Row {
  absl::string_view name;
  std::unique_ptr<Heuristic> (*make)(size_t storages);
};

constexpr Row kRows[] = {
    {"DTR", Make<Dtr>},           {"DTREqClass", Make<DtrEqClass>},
    {"DTRLocal", Make<DtrLocal>}, {"MSPS", Make<Msps>},
    {"LRU", Make<Lru>},           {"LargestStorage", Make<LargestStorage>},
};

}  // namespace

std::vector<absl::string_view> HeuristicNames() {
  std::vector<absl::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Heuristic>> MakeHeuristic(absl::string_view name, size_t storages) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.make(storages);
  }
  return absl::InvalidArgumentError(absl::StrCat("no published heuristic ", name, "; there are ",
                                                 absl::StrJoin(HeuristicNames(), ", ")));
}

}  // namespace ebbtide::published
