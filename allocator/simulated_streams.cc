// SPDX-License-Identifier: Apache-2.0

#include "allocator/simulated_streams.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {

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

SimulatedStreams::Counters SimulatedStreams::counters() {
  std::lock_guard<std::mutex> lock(mutex_);
  CatchUp();
  Counters counters = counters_;
  counters.pending = CountPending();
  counters.streams = static_cast<int64_t>(streams_.size());
  counters.pooled_events = static_cast<int64_t>(events_.size());
  return counters;
}

}  // namespace ebbtide
