// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStreams as a StreamOrder: events and waits.

#include "absl/strings/str_cat.h"
#include "allocator/simulated_streams.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {

SimulatedStreams::EventSlot& SimulatedStreams::FindEvent(Event event) {
  const auto index = static_cast<uint32_t>(event);
  EBB_CHECK(index < events_.size() && events_[index].live &&
            events_[index].generation == event >> 32)
      << "event " << event << " was released, or never recorded";
  return events_[index];
}

absl::StatusOr<StreamOrder::Event> SimulatedStreams::Record(StreamId stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end() || it->second.destroyed) {
    return absl::NotFoundError(absl::StrCat("there is no stream ", stream));
  }
  EBB_RETURN_IF_ERROR(device_->failures()->Count(DriverCall::kRecord));
  if (free_events_.empty()) {
    free_events_.push_back(static_cast<uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const uint32_t index = free_events_.back();
  free_events_.pop_back();
  EventSlot& slot = events_[index];
  slot.point = {stream, it->second.last()};
  slot.live = true;
  ++counters_.records;
  ++counters_.live_events;
  return Event{slot.generation} << 32 | index;
}

bool SimulatedStreams::IsDone(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.queries;
  CatchUp();
  return IsComplete(FindEvent(event).point);
}

void SimulatedStreams::Wait(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  const Point point = FindEvent(event).point;
  if (IsComplete(point)) return;
  const Nanos start = clock_->now();
  while (!IsComplete(point)) RunNext();
  ++counters_.waits;
  counters_.waited += clock_->now() - start;
}

void SimulatedStreams::WaitForAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  if (CountPending() == 0) return;
  const Nanos start = clock_->now();
  while (CountPending() > 0) RunNext();
  ++counters_.waits;
  counters_.waited += clock_->now() - start;
}

void SimulatedStreams::Release(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  EventSlot& slot = FindEvent(event);
  slot.live = false;
  ++slot.generation;
  free_events_.push_back(static_cast<uint32_t>(event));
  --counters_.live_events;
}

}  // namespace ebbtide
