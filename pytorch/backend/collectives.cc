// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/collectives.h"

#include <pthread.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

struct InFlight {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<Value*> values;

  bool Done() const {
    return std::all_of(works.begin(), works.end(),
                       [](const auto& work) { return work->isCompleted(); });
  }
};

std::atomic<size_t> in_flight_count{0};
Mutex in_flight_mutex;
// A child of fork() must not find it locked by a thread that it does not have.
[[maybe_unused]] const int in_flight_fork_safe =
    pthread_atfork([] { in_flight_mutex.Lock(); }, [] { in_flight_mutex.Unlock(); },
                   [] { in_flight_mutex.Unlock(); });
std::vector<InFlight>& AllInFlight() {
  static auto* const all = new std::vector<InFlight>;
  return *all;
}

void FindWorks(const c10::IValue& value, std::vector<c10::intrusive_ptr<c10d::Work>>* works) {
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) FindWorks(element, works);
  } else if (value.isCustomClass()) {
    try {
      works->push_back(value.toCustomClass<c10d::Work>());
    } catch (const c10::Error&) {
      // Another class: whoever finds no work at all keeps everything for good.
    }
  }
}

}  // namespace

void KeepUntilDone(Manager* manager, const std::vector<c10::StorageImpl*>& storages,
                   absl::Span<const c10::IValue> returned) {
  InFlight collective;
  for (const c10::IValue& value : returned) FindWorks(value, &collective.works);
  if (collective.works.empty()) {
    for (c10::StorageImpl* storage : storages) manager->Escape(*storage);
    return;
  }
  for (c10::StorageImpl* storage : storages) {
    BlockHeader* header = HeaderOf(*storage);
    if (header == nullptr) continue;
    absl::StatusOr<Value*> value = manager->runtime().Pin(manager->Adopt(*storage, *header));
    Manager::FlushReferences();
    if (!value.ok()) manager->ThrowStatus(value.status());
    collective.values.push_back(*value);
  }
  MutexLock lock(&in_flight_mutex);
  AllInFlight().push_back(std::move(collective));
  in_flight_count.store(AllInFlight().size(), std::memory_order_relaxed);
}

void PollCollectives(Manager* manager) {
  if (in_flight_count.load(std::memory_order_relaxed) == 0) return;
  std::vector<InFlight> done;
  {
    MutexLock lock(&in_flight_mutex);
    std::vector<InFlight>& all = AllInFlight();
    const auto first_done = std::stable_partition(
        all.begin(), all.end(), [](const InFlight& collective) { return !collective.Done(); });
    std::move(first_done, all.end(), std::back_inserter(done));
    all.erase(first_done, all.end());
    in_flight_count.store(all.size(), std::memory_order_relaxed);
  }
  for (const InFlight& collective : done) {
    for (Value* value : collective.values) manager->runtime().Unpin(value);
  }
}

}  // namespace ebbtide
