// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/cuda_stream_order.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

CuStream Handle(uintptr_t number) { return reinterpret_cast<CuStream>(number); }
uintptr_t Number(CuStream handle) { return reinterpret_cast<uintptr_t>(handle); }

CuEvent ToCuEvent(StreamOrder::Event event) { return reinterpret_cast<CuEvent>(event); }

}  // namespace

struct CudaStreamOrder::ThreadLife {
  std::mutex mutex;  // held while the thread's stream must not end
  std::atomic<bool> runs = true;
};

// The driver destroys a thread's stream after the thread's own C++ objects are gone, so that
// `runs` is false before.
std::shared_ptr<CudaStreamOrder::ThreadLife> CudaStreamOrder::ThisThread() {
  struct Holder {
    std::shared_ptr<ThreadLife> life = std::make_shared<ThreadLife>();
    ~Holder() {
      std::lock_guard<std::mutex> lock(life->mutex);
      life->runs = false;
    }
  };
  thread_local Holder holder;
  return holder.life;
}

absl::StatusOr<std::unique_ptr<CudaStreamOrder>> CudaStreamOrder::Create(const CudaDriver* driver,
                                                                         int ordinal) {
  EBB_RETURN_IF_ERROR(driver->stream_ids());
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::Retain(driver, ordinal));
  return std::unique_ptr<CudaStreamOrder>(new CudaStreamOrder(std::move(context)));
}

CudaStreamOrder::CudaStreamOrder(std::unique_ptr<CudaContext> context)
    : context_(std::move(context)), driver_(context_->driver()), cu_(driver_.functions()) {
  streams_[kDefaultStream] = {.handle = Handle(kCuStreamLegacy), .thread = nullptr};
}

CudaStreamOrder::~CudaStreamOrder() {
  const CudaContext::Scope scope(*context_);
  if (!scope.status().ok()) return;
  for (CuEvent event : events_) cu_.event_destroy(event);
}

absl::StatusOr<StreamId> CudaStreamOrder::Register(CuStream stream) {
  if (Number(stream) == kCuStreamDefault || Number(stream) == kCuStreamLegacy) {
    return kDefaultStream;
  }
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  unsigned long long id = 0;
  EBB_RETURN_IF_ERROR(driver_.Check(cu_.stream_get_id(stream, &id), "cuStreamGetId"));
  if (id == kDefaultStream) {
    return absl::InternalError("cuStreamGetId: a stream has the number of the default stream");
  }
  Enter(id, stream);
  return id;
}

void CudaStreamOrder::Enter(StreamId id, CuStream handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto known = streams_.find(id);
  if (Number(handle) == kCuStreamPerThread) {
    const std::shared_ptr<ThreadLife> self = ThisThread();
    if (known != streams_.end() && known->second.thread == self) return;
    ForgetEndedThreads();
    streams_[id] = {.handle = handle, .thread = self};  // which a driver may give to a new thread
    return;
  }
  if (known != streams_.end()) return;
  const auto [same_handle, is_new] = by_handle_.try_emplace(handle, id);
  if (!is_new) streams_.erase(std::exchange(same_handle->second, id));
  streams_[id] = {.handle = handle, .thread = nullptr};
}

void CudaStreamOrder::ForgetEndedThreads() {
  absl::erase_if(streams_, [](const auto& entry) {
    const std::shared_ptr<ThreadLife>& thread = entry.second.thread;
    return thread != nullptr && !thread->runs;
  });
}

void CudaStreamOrder::Forget(StreamId stream) {
  if (stream == kDefaultStream) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  if (found->second.thread == nullptr) by_handle_.erase(found->second.handle);
  streams_.erase(found);
}

absl::StatusOr<StreamOrder::Event> CudaStreamOrder::Record(StreamId stream) {
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  Stream target;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = streams_.find(stream);
    if (found != streams_.end()) target = found->second;
  }
  if (target.handle == nullptr) return Gone(stream);
  if (target.thread == nullptr) {
    if (stream == kDefaultStream) return RecordOn(target.handle);
    EBB_ASSIGN_OR_RETURN(const bool exists, Exists(stream, target.handle));
    return exists ? RecordOn(target.handle) : Gone(stream);
  }
  if (target.thread == ThisThread()) return RecordOn(target.handle);
  {
    std::lock_guard<std::mutex> lock(target.thread->mutex);
    if (target.thread->runs) return RecordOn(Handle(kCuStreamLegacy));
  }
  return Gone(stream);
}

// A driver that has failed for good answers with that failure, which says nothing of the stream.
absl::StatusOr<bool> CudaStreamOrder::Exists(StreamId id, CuStream handle) const {
  unsigned long long now = 0;
  const CuResult result = cu_.stream_get_id(handle, &now);
  if (result == kCuErrorInvalidHandle || result == kCuErrorInvalidValue ||
      result == kCuErrorContextIsDestroyed) {
    return false;
  }
  EBB_RETURN_IF_ERROR(driver_.Check(result, "cuStreamGetId"));
  return now == id;
}

absl::Status CudaStreamOrder::CheckNotCaptured(CuStream handle) const {
  int status = kCuCaptureStatusNone;
  EBB_RETURN_IF_ERROR(
      driver_.Check(cu_.stream_is_capturing(handle, &status), "cuStreamIsCapturing"));
  if (status == kCuCaptureStatusNone) return absl::OkStatus();
  return absl::FailedPreconditionError("the stream is being captured");
}

std::vector<std::pair<StreamId, CudaStreamOrder::Stream>> CudaStreamOrder::Streams() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {streams_.begin(), streams_.end()};
}

// The shared default stream answers for other threads' default streams, and for all unknown streams
// that wait for it.
bool CudaStreamOrder::AnyIsCaptured() const {
  const std::shared_ptr<ThreadLife> self = ThisThread();
  for (const auto& [id, stream] : Streams()) {
    if (stream.thread != nullptr && stream.thread != self) continue;
    if (id != kDefaultStream && !Exists(id, stream.handle).value_or(false)) continue;
    if (absl::IsFailedPrecondition(CheckNotCaptured(stream.handle))) return true;
  }
  return false;
}

// Whoever is told NotFound waits for the device, which a capture forbids.
absl::Status CudaStreamOrder::Gone(StreamId id) {
  Forget(id);
  const std::string text = absl::StrCat("stream ", id, " was destroyed");
  if (!AnyIsCaptured()) return absl::NotFoundError(text);
  return absl::FailedPreconditionError(absl::StrCat(text, ", and another is being captured"));
}

absl::StatusOr<StreamOrder::Event> CudaStreamOrder::RecordOn(CuStream handle) {
  EBB_RETURN_IF_ERROR(CheckNotCaptured(handle));
  EBB_ASSIGN_OR_RETURN(CuEvent event, TakeEvent());
  const absl::Status status = driver_.Check(cu_.event_record(event, handle), "cuEventRecord");
  if (status.ok()) return reinterpret_cast<Event>(event);
  Release(reinterpret_cast<Event>(event));
  return status;
}

absl::StatusOr<CuEvent> CudaStreamOrder::TakeEvent() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_events_.empty()) {
      CuEvent event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  CuEvent event = nullptr;
  EBB_RETURN_IF_ERROR(
      driver_.Check(cu_.event_create(&event, kCuEventDisableTiming), "cuEventCreate"));
  std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(event);
  return event;
}

bool CudaStreamOrder::IsDone(Event event) {
  const CudaContext::Scope scope(*context_);
  if (!scope.status().ok()) return true;
  const CuResult result = cu_.event_query(ToCuEvent(event));
  return result != kCuErrorNotReady && !CudaDriver::IsCaptureError(result);
}

void CudaStreamOrder::Wait(Event event) {
  const CudaContext::Scope scope(*context_);
  if (!scope.status().ok()) return;
  // A capture that forbids to wait in the driver does not forbid to wait for its end.
  while (CudaDriver::IsCaptureError(cu_.event_synchronize(ToCuEvent(event)))) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void CudaStreamOrder::WaitForAll() {
  const CudaContext::Scope scope(*context_);
  if (!scope.status().ok()) return;
  if (!AnyIsCaptured() && !CudaDriver::IsCaptureError(cu_.ctx_synchronize())) return;
  for (const auto& [id, stream] : Streams()) {
    absl::StatusOr<Event> event = Record(id);
    if (!event.ok()) continue;
    Wait(*event);
    Release(*event);
  }
}

void CudaStreamOrder::Release(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_events_.push_back(ToCuEvent(event));
}

}  // namespace ebbtide
