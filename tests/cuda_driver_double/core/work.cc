// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/work.h"

#include <algorithm>
#include <utility>

namespace ebbtide::hollow {
namespace {

bool Overlaps(const Touch& touch, uintptr_t start, size_t bytes) {
  return touch.start < start + bytes && start < touch.start + touch.bytes;
}

std::optional<std::mt19937_64> Generator(std::optional<uint64_t> seed) {
  if (!seed.has_value()) return std::nullopt;
  return std::mt19937_64(*seed);
}

}  // namespace

Work::Work(std::optional<uint64_t> seed, FaultHandler on_fault)
    : random_(Generator(seed)), on_fault_(std::move(on_fault)) {}

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
  stream.pending.push_back(std::move(operation));
  const Ticket ticket{stream.id, ++stream.issued};
  if (!random_.has_value()) {
    RunUntil(ticket);
  } else if (CountPending() > kPendingMax) {
    RunUntil({stream.id, stream.done + 1});
  }
  return ticket;
}

bool Work::IsDone(Ticket ticket) const {
  const Stream* stream = FindStream(ticket.stream);
  return stream == nullptr || stream->done >= ticket.number;
}

void Work::RunUntil(Ticket ticket) {
  // Whoever queued an operation named only earlier ones to wait for, so this comes to an end.
  while (Stream* stream = FindStream(ticket.stream)) {
    if (stream->done >= ticket.number || stream->pending.empty()) break;
    const std::vector<Ticket> needed = stream->pending.front().after;
    for (Ticket other : needed) RunUntil(other);
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
}

const Stream* Work::FindUser(uintptr_t start, size_t bytes, const Stream* ignored,
                             const Operation** operation) const {
  for (const auto& stream : streams_) {
    if (stream.get() == ignored) continue;
    for (const Operation& each : stream->pending) {
      for (const Touch& touch : each.touches) {
        if (!Overlaps(touch, start, bytes)) continue;
        *operation = &each;
        return stream.get();
      }
    }
  }
  return nullptr;
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
                     [this](Ticket ticket) { return IsDone(ticket); });
}

void Work::DropEmptyStreams() {
  std::erase_if(streams_, [](const std::shared_ptr<Stream>& stream) {
    return stream->destroyed && stream->pending.empty();
  });
}

}  // namespace ebbtide::hollow
