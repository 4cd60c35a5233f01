// SPDX-License-Identifier: Apache-2.0

#include "allocator/awaiting_blocks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {

AwaitingBlocks::~AwaitingBlocks() {
  for (auto& [stream, marks] : marks_) {
    for (const Mark& mark : marks) streams_->Release(mark.event);
  }
}

void AwaitingBlocks::AddUse(uintptr_t address, StreamId stream) {
  EBB_CHECK(streams_ != nullptr) << "a device without streams has no other stream";
  auto& users = uses_[address];
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  use_count_.store(static_cast<int64_t>(uses_.size()), std::memory_order_relaxed);
}

// Returns false when the stream is being captured: no event may be recorded on it now.
bool AwaitingBlocks::Record(uintptr_t address, StreamId stream, Waiting* waiting) {
  const absl::StatusOr<StreamOrder::Event> event = streams_->Record(stream);
  if (event.ok()) {
    marks_[stream].push_back({*event, address});
    ++waiting->events;
    return true;
  }
  if (absl::IsFailedPrecondition(event.status())) return false;
  // The stream is gone, or the driver has failed: nothing less than the whole device tells.
  streams_->WaitForAll();
  return true;
}

bool AwaitingBlocks::Free(uintptr_t address, int64_t bytes) {
  const auto it = uses_.find(address);
  if (it == uses_.end()) return false;
  const auto users = std::move(it->second);
  uses_.erase(it);
  use_count_.store(static_cast<int64_t>(uses_.size()), std::memory_order_relaxed);
  Waiting waiting;
  waiting.bytes = bytes;
  for (StreamId user : users) {
    if (!Record(address, user, &waiting)) waiting.unrecorded.push_back(user);
  }
  if (waiting.events == 0 && waiting.unrecorded.empty()) return false;
  if (!waiting.unrecorded.empty()) unrecorded_.push_back(address);
  waiting_.emplace(address, std::move(waiting));
  bytes_ += bytes;
  return true;
}

void AwaitingBlocks::Hold(uintptr_t address, int64_t bytes) {
  if (!Free(address, bytes)) {
    waiting_[address].bytes = bytes;
    bytes_ += bytes;
  }
  ++waiting_.at(address).events;
}

bool AwaitingBlocks::EndHold(uintptr_t address) {
  --waiting_.at(address).events;
  return TryFinish(address);
}

void AwaitingBlocks::RecordMissing(std::vector<uintptr_t>* done) {
  std::erase_if(unrecorded_, [&](uintptr_t address) {
    Waiting& waiting = waiting_.at(address);
    auto& streams = waiting.unrecorded;
    streams.erase(std::remove_if(streams.begin(), streams.end(),
                                 [&](StreamId s) { return Record(address, s, &waiting); }),
                  streams.end());
    if (!streams.empty()) return false;
    FinishIfDone(address, done);
    return true;
  });
}

bool AwaitingBlocks::TryFinish(uintptr_t address) {
  const auto it = waiting_.find(address);
  if (it->second.events > 0 || !it->second.unrecorded.empty()) return false;
  bytes_ -= it->second.bytes;
  waiting_.erase(it);
  return true;
}

void AwaitingBlocks::Poll(bool wait, std::vector<uintptr_t>* done) {
  if (waiting_.empty()) return;
  if (!unrecorded_.empty()) RecordMissing(done);
  for (auto it = marks_.begin(); it != marks_.end();) {
    std::deque<Mark>& marks = it->second;
    if (wait && !marks.empty()) streams_->Wait(marks.back().event);
    while (!marks.empty() && streams_->IsDone(marks.front().event)) {
      streams_->Release(marks.front().event);
      --waiting_.at(marks.front().address).events;
      FinishIfDone(marks.front().address, done);
      marks.pop_front();
    }
    // Streams come and go: what is empty is not kept.
    if (marks.empty()) {
      marks_.erase(it++);
    } else {
      ++it;
    }
  }
}

}  // namespace ebbtide
