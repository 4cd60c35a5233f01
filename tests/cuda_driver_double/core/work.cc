// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/work.h"

#include <algorithm>
#include <utility>

namespace ebbtide::hollow {
namespace {

std::optional<std::mt19937_64> Generator(std::optional<uint64_t> seed) {
  if (!seed.has_value()) return std::nullopt;
  return std::mt19937_64(*seed);
}

}  // namespace

Work::Work(std::optional<uint64_t> seed, FaultHandler on_fault, RaceHandler on_race)
    : random_(Generator(seed)), on_fault_(std::move(on_fault)), on_race_(std::move(on_race)) {}

void Work::SetSeed(std::optional<uint64_t> seed) {
  RunAll();
  random_ = Generator(seed);
}

std::shared_ptr<Stream> Work::Open(int device, bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->id = ++last_stream_;
  stream->device = device;
  stream->blocking = blocking;
  streams_.push_back(stream);
  return stream;
}

void Work::Close(Stream& stream) {
  stream.destroyed = true;
  DropEmptyStreams();
}

Ticket Work::Enqueue(Stream& stream, Operation operation) {
  // The legacy stream and the blocking streams of its device wait for each other's earlier work.
  for (const auto& other : streams_) {
    const bool ordered = stream.legacy ? other->blocking : stream.blocking && other->legacy;
    if (other->device == stream.device && other.get() != &stream && ordered) {
      operation.after.push_back(other->tail());
    }
  }
  Order(stream, operation);
  stream.pending.push_back(std::move(operation));
  const Ticket ticket = stream.tail();
  if (!random_.has_value()) {
    RunUntil(ticket);
  } else if (CountPending() > kPendingMax) {
    RunUntil({stream.id, stream.done + 1});
  }
  return ticket;
}

void Work::Order(Stream& stream, const Operation& operation) {
  auto clock = std::make_shared<Clock>(host_);
  if (stream.clock != nullptr) Merge(*stream.clock, clock.get());
  if (stream.legacy) Merge(retired_[stream.device].blocking, clock.get());
  for (const Ticket& ticket : operation.after) {
    if (ticket.clock != nullptr) Merge(*ticket.clock, clock.get());
  }
  const Toucher toucher{stream.id, ++stream.issued, operation.name};
  (*clock)[stream.id] = toucher.number;
  stream.clock = clock;
  for (const Touch& touch : operation.touches) {
    const std::optional<Toucher> earlier = history_.Note(touch, toucher, *clock);
    if (earlier.has_value()) on_race_(toucher, touch, *earlier);
  }
}

bool Work::IsDone(const Ticket& ticket) const {
  const Stream* stream = FindStream(ticket.stream);
  return stream == nullptr || stream->done >= ticket.number;
}

void Work::RunUntil(const Ticket& ticket) {
  // Whoever queued an operation named only earlier ones to wait for, so this comes to an end.
  while (Stream* stream = FindStream(ticket.stream)) {
    if (stream->done >= ticket.number || stream->pending.empty()) break;
    const std::vector<Ticket> needed = stream->pending.front().after;
    for (const Ticket& other : needed) RunUntil(other);
    stream = FindStream(ticket.stream);
    if (stream != nullptr && !stream->pending.empty()) RunFront(*stream);
  }
  DropEmptyStreams();
}

void Work::RunDevice(int device) {
  const auto streams = streams_;  // running may drop some
  for (const auto& stream : streams) {
    if (stream->device == device) RunUntil(stream->tail());
  }
}

void Work::RunAll() {
  const auto streams = streams_;
  for (const auto& stream : streams) RunUntil(stream->tail());
}

void Work::RunByItself() {
  if (!random_.has_value()) return;
  const auto streams = streams_;
  for (const auto& stream : streams) {
    for (uint64_t steps = (*random_)() % 3; steps > 0 && !stream->pending.empty(); --steps) {
      if (!IsReady(stream->pending.front())) break;
      RunFront(*stream);
    }
  }
  DropEmptyStreams();
}

void Work::Abandon(int device) {
  for (const auto& stream : streams_) {
    if (stream->device != device) continue;
    stream->pending.clear();
    stream->done = stream->issued;
  }
  LearnDevice(device);
}

void Work::Learn(const Ticket& ticket) {
  if (ticket.clock != nullptr) Merge(*ticket.clock, &host_);
}

void Work::LearnDevice(int device) {
  for (const auto& stream : streams_) {
    if (stream->device == device) Learn(stream->tail());
  }
  Merge(retired_[device].all, &host_);
}

std::optional<Toucher> Work::FindUser(uintptr_t start, size_t bytes) const {
  return history_.FindUnordered(start, bytes, host_);
}

size_t Work::CountPending() const {
  size_t count = 0;
  for (const auto& stream : streams_) count += stream->pending.size();
  return count;
}

Stream* Work::FindStream(uint64_t id) const {
  // Ids grow, and streams stand in the order of their making.
  const auto found = std::lower_bound(
      streams_.begin(), streams_.end(), id,
      [](const std::shared_ptr<Stream>& stream, uint64_t wanted) { return stream->id < wanted; });
  return found != streams_.end() && (*found)->id == id ? found->get() : nullptr;
}

void Work::RunFront(Stream& stream) {
  const Operation operation = std::move(stream.pending.front());
  stream.pending.pop_front();
  ++stream.done;
  const Result result = operation.run ? operation.run() : Result::kSuccess;
  if (result == Result::kSuccess) return;
  on_fault_(stream, operation, result);
  Abandon(stream.device);
}

bool Work::IsReady(const Operation& operation) const {
  return std::all_of(operation.after.begin(), operation.after.end(),
                     [this](const Ticket& ticket) { return IsDone(ticket); });
}

void Work::DropEmptyStreams() {
  std::erase_if(streams_, [this](const std::shared_ptr<Stream>& stream) {
    if (!stream->destroyed || !stream->pending.empty()) return false;
    if (stream->clock == nullptr) return true;
    Retired& retired = retired_[stream->device];
    Merge(*stream->clock, &retired.all);
    if (stream->blocking) Merge(*stream->clock, &retired.blocking);
    return true;
  });
}

}  // namespace ebbtide::hollow
