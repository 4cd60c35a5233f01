// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

bool Overlaps(const SimulatedStreams::Touch& touch, uintptr_t begin, uintptr_t end) {
  const auto first = reinterpret_cast<uintptr_t>(touch.begin);
  return first < end && begin < first + touch.size.count();
}

}  // namespace

SimulatedStreams::SimulatedStreams(SimulatedDevice* device, Options options)
    : device_(device), clock_(device->clock()), spread_(options.spread), random_(options.seed) {
  EBB_CHECK(options.spread >= 1) << "work cannot take " << options.spread << " times its time";
  streams_[kDefaultStream];
  device_->Watch(this);
}

SimulatedStreams::~SimulatedStreams() {
  device_->Unwatch(this);
  EBB_CHECK(counters_.live_events == 0) << counters_.live_events << " events were never released";
}

SimulatedStreams::Stream& SimulatedStreams::Find(StreamId stream) {
  const auto it = streams_.find(stream);
  EBB_CHECK(it != streams_.end() && !it->second.destroyed) << "there is no stream " << stream;
  return it->second;
}

StreamId SimulatedStreams::CreateStream() {
  std::lock_guard<std::mutex> lock(mutex_);
  streams_[next_stream_].free_at = clock_->now();
  return next_stream_++;
}

void SimulatedStreams::DestroyStream(StreamId stream) {
  EBB_CHECK(stream != kDefaultStream) << "the default stream cannot be destroyed";
  std::lock_guard<std::mutex> lock(mutex_);
  Stream& found = Find(stream);
  found.destroyed = true;
  if (found.queue.empty()) streams_.erase(stream);
}

void SimulatedStreams::Queue(StreamId stream, Nanos duration, std::vector<Touch> touches) {
  for (const Touch& touch : touches) {
    EBB_CHECK(touch.size > Bytes(0) && device_->IsCommitted(touch.begin, touch.size))
        << "queued work touches " << touch.begin << ", which has no memory behind it";
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const double factor = std::uniform_real_distribution<>(1, spread_)(random_);
  const Nanos taken(static_cast<int64_t>(static_cast<double>(duration.count()) * factor));
  Find(stream).queue.push_back({clock_->now(), taken, std::move(touches), std::nullopt});
}

void SimulatedStreams::StreamWaitEvent(StreamId stream, Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Point point = FindEvent(event).point;
  Stream& waiting = Find(stream);
  if (point.stream == stream || IsComplete(point)) return;
  waiting.queue.push_back({clock_->now(), Nanos(0), {}, point});
}

// A stream that is not there any more was destroyed, and all its work is done.
bool SimulatedStreams::IsComplete(const Point& point) const {
  const auto it = streams_.find(point.stream);
  return it == streams_.end() || it->second.completed >= point.sequence;
}

bool SimulatedStreams::CanRun(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const std::optional<Point>& after = stream.queue.front().after;
  return !after.has_value() || IsComplete(*after);
}

// When the first work of a stream that can run ends.
Nanos SimulatedStreams::EndOf(const Stream& stream) {
  const Work& work = stream.queue.front();
  return std::max(stream.free_at, work.queued) + work.duration;
}

// The stream whose first work ends before all others, or end() when nothing is queued.
SimulatedStreams::Streams::iterator SimulatedStreams::NextToEnd() {
  auto next = streams_.end();
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    if (!CanRun(it->second)) continue;
    if (next == streams_.end() || EndOf(it->second) < EndOf(next->second)) next = it;
  }
  return next;
}

void SimulatedStreams::Complete(Streams::iterator it, Nanos at) {
  Stream& stream = it->second;
  stream.queue.pop_front();
  ++stream.completed;
  ++counters_.completed;
  stream.free_at = at;
  for (auto& [id, other] : streams_) {
    if (other.queue.empty() || !other.queue.front().after.has_value()) continue;
    const Point& after = *other.queue.front().after;
    // Only the work that it waited for sets a stream free, not what that stream does later.
    if (after.stream == it->first && after.sequence == stream.completed) {
      other.free_at = std::max(other.free_at, at);
    }
  }
  if (stream.destroyed && stream.queue.empty()) streams_.erase(it);
}

// Completes what has come to its end by now.
void SimulatedStreams::CatchUp() {
  const Nanos now = clock_->now();
  for (auto it = NextToEnd(); it != streams_.end(); it = NextToEnd()) {
    const Nanos end = EndOf(it->second);
    if (end > now) return;
    Complete(it, end);
  }
}

// Lets time pass until one more work is done. REQUIRES: one is queued.
void SimulatedStreams::RunNext() {
  const auto it = NextToEnd();
  EBB_CHECK(it != streams_.end()) << "waiting for work that was never queued";
  const Nanos end = EndOf(it->second);
  Complete(it, end);
  clock_->AdvanceTo(end);
}

int64_t SimulatedStreams::CountPending() const {
  int64_t pending = 0;
  for (const auto& [id, stream] : streams_) pending += static_cast<int64_t>(stream.queue.size());
  return pending;
}

void SimulatedStreams::Advance(Nanos duration) { clock_->Advance(duration); }

int64_t SimulatedStreams::CompleteSome() {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  const int64_t pending = CountPending();
  if (pending == 0) return 0;
  const int64_t count = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(pending));
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Streams::iterator> able;
    for (auto it = streams_.begin(); it != streams_.end(); ++it) {
      if (CanRun(it->second)) able.push_back(it);
    }
    Complete(able[random_() % able.size()], clock_->now());
  }
  return count;
}

void SimulatedStreams::CompleteAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (CountPending() > 0) RunNext();
}

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

SimulatedStreams::Counters SimulatedStreams::counters() {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  Counters counters = counters_;
  counters.pending = CountPending();
  counters.pooled_events = static_cast<int64_t>(events_.size());
  return counters;
}

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
