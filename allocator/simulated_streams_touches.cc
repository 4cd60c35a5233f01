// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStreams as a witness: which queued work touches what.

#include "allocator/simulated_streams.h"
#include "base/check.h"

namespace ebbtide {
namespace {

bool Overlaps(const SimulatedStreams::Touch& touch, uintptr_t begin, uintptr_t end) {
  const auto first = reinterpret_cast<uintptr_t>(touch.begin);
  return first < end && begin < first + touch.size.count();
}

}  // namespace

// What is complete before anything that `stream` will be given from now on: for each stream the
// number of its works. Waits that are over need no look: what they waited for is complete.
std::map<StreamId, uint64_t> SimulatedStreams::OrderedBefore(StreamId stream) const {
  std::map<StreamId, uint64_t> before;
  std::vector<Point> open;
  const auto self = streams_.find(stream);
  if (self != streams_.end()) open.push_back({stream, self->second.last()});
  while (!open.empty()) {
    const Point point = open.back();
    open.pop_back();
    const auto it = streams_.find(point.stream);
    if (it == streams_.end() || before[point.stream] >= point.sequence) continue;
    before[point.stream] = point.sequence;
    uint64_t sequence = it->second.completed;
    for (const Work& work : it->second.queue) {
      if (++sequence > point.sequence) break;
      if (work.after.has_value()) open.push_back(*work.after);
    }
  }
  return before;
}

std::optional<StreamId> SimulatedStreams::FindConflict(const void* address, Bytes size,
                                                       StreamId stream) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  std::optional<std::map<StreamId, uint64_t>> before;  // seldom needed
  for (const auto& [id, other] : streams_) {
    if (id == stream) continue;
    uint64_t sequence = other.completed;
    for (const Work& work : other.queue) {
      ++sequence;
      for (const Touch& touch : work.touches) {
        if (!Overlaps(touch, begin, begin + size.count())) continue;
        if (!before.has_value()) before = OrderedBefore(stream);
        if ((*before)[id] < sequence) return id;
      }
    }
  }
  return std::nullopt;
}

void SimulatedStreams::BeforeTaking(uintptr_t begin, uintptr_t end) {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  for (const auto& [id, stream] : streams_) {
    for (const Work& work : stream.queue) {
      for (const Touch& touch : work.touches) {
        EBB_CHECK(!Overlaps(touch, begin, end))
            << "memory at " << touch.begin << " is taken away while queued work of stream " << id
            << " touches it";
      }
    }
  }
}

}  // namespace ebbtide
