// SPDX-License-Identifier: Apache-2.0
// Events, and streams that wait for them.

#include <chrono>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

template <typename Body>
Result WithEvent(EntryPoint entry, EventHandle handle, Body&& body) {
  return Call(entry, [&](Machine& machine) {
    const std::shared_ptr<Event> event = machine.events.Find(static_cast<uintptr_t>(handle));
    return event == nullptr ? Result::kInvalidHandle : body(machine, event);
  });
}

Result Record(Machine& machine, const std::shared_ptr<Event>& event, StreamHandle handle) {
  const std::shared_ptr<Stream> stream = FindStream(machine, handle);
  if (stream == nullptr || stream->device != event->device) return Result::kInvalidHandle;
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return Result::kCaptureInvalidated;
    event->captured = CapturePoint{stream->capture, stream->capture->clocks[stream->id]};
    return Result::kSuccess;
  }
  event->captured.reset();
  // The time is that of the latest record, whichever of them ends last.
  const uint64_t number = ++event->records;
  Operation operation{.name = "record of an event"};
  operation.run = [event, number] {
    if (event->records == number) event->completed_at = std::chrono::steady_clock::now();
    return Result::kSuccess;
  };
  Ticket ticket;
  const Result queued = Queue(machine, *stream, std::move(operation), &ticket);
  if (queued == Result::kSuccess) event->recorded = ticket;
  return queued;
}

// Lets `stream` join the capture in which the event was recorded.
Result WaitInCapture(const std::shared_ptr<Stream>& stream, const CapturePoint& point) {
  const std::shared_ptr<Capture> capture = point.capture.lock();
  if (capture == nullptr) return Result::kCapturedEvent;
  if (capture->invalidated) return Result::kCaptureInvalidated;
  if (stream->legacy) {
    capture->invalidated = true;
    return Result::kCaptureImplicit;
  }
  if (stream->capture != nullptr && stream->capture != capture) {
    capture->invalidated = stream->capture->invalidated = true;
    return Result::kCaptureMerge;
  }
  stream->capture = capture;
  capture->Join(stream, point.before);
  return Result::kSuccess;
}

bool IsDone(const Machine& machine, const Event& event) {
  return !event.recorded.has_value() || machine.work->IsDone(*event.recorded);
}

Result ElapsedTime(EntryPoint entry, float* milliseconds, EventHandle start, EventHandle end) {
  return Call(entry, [&](Machine& machine) {
    const auto first = machine.events.Find(static_cast<uintptr_t>(start));
    const auto last = machine.events.Find(static_cast<uintptr_t>(end));
    if (milliseconds == nullptr) return Result::kInvalidValue;
    for (const auto& event : {first, last}) {
      if (event == nullptr || !event->recorded.has_value()) return Result::kInvalidHandle;
      if ((event->flags & kEventDisableTiming) != 0) return Result::kInvalidHandle;
      if (event->captured.has_value()) return Result::kCapturedEvent;
    }
    if (!IsDone(machine, *first) || !IsDone(machine, *last)) return Result::kNotReady;
    const std::chrono::duration<float, std::milli> time = last->completed_at - first->completed_at;
    *milliseconds = time.count();
    return Result::kSuccess;
  });
}

}  // namespace

Result cuEventCreate(EventHandle* handle, unsigned flags) {
  return Call(EntryPoint::cuEventCreate, [&](Machine& machine) {
    if (handle == nullptr || (flags & ~kEventFlagsAll) != 0) return Result::kInvalidValue;
    if ((flags & kEventInterprocess) != 0) {
      // What passes between processes cannot tell the time; and the double has no such events.
      return (flags & kEventDisableTiming) == 0 ? Result::kInvalidValue : Result::kNotSupported;
    }
    auto event = std::make_shared<Event>();
    event->device = CurrentDevice(machine);
    event->flags = flags;
    event->handle = machine.events.Add(event);
    *handle = EventHandle{event->handle};
    return Result::kSuccess;
  });
}

Result cuEventRecord(EventHandle handle, StreamHandle stream) {
  return WithEvent(EntryPoint::cuEventRecord, handle,
                   [&](Machine& machine, const std::shared_ptr<Event>& event) {
                     return Record(machine, event, stream);
                   });
}

Result cuEventRecordWithFlags(EventHandle handle, StreamHandle stream, unsigned flags) {
  return WithEvent(EntryPoint::cuEventRecordWithFlags, handle,
                   [&](Machine& machine, const std::shared_ptr<Event>& event) {
                     if (flags != 0) return Result::kNotSupported;
                     return Record(machine, event, stream);
                   });
}

Result cuEventQuery(EventHandle handle) {
  return WithEvent(EntryPoint::cuEventQuery, handle,
                   [](Machine& machine, const std::shared_ptr<Event>& event) {
                     if (event->captured.has_value()) return Result::kCapturedEvent;
                     const bool done = IsDone(machine, *event);
                     if (done && event->recorded.has_value()) {
                       machine.work->Learn(*event->recorded);
                     }
                     machine.work->RunByItself();
                     const Result broken = machine.devices[event->device].broken;
                     if (broken != Result::kSuccess) return broken;
                     return done ? Result::kSuccess : Result::kNotReady;
                   });
}

Result cuEventSynchronize(EventHandle handle) {
  return WithEvent(EntryPoint::cuEventSynchronize, handle,
                   [](Machine& machine, const std::shared_ptr<Event>& event) {
                     if (event->captured.has_value()) return Result::kCapturedEvent;
                     if (event->recorded.has_value()) {
                       machine.work->RunUntil(*event->recorded);
                       machine.work->Learn(*event->recorded);
                     }
                     return machine.devices[event->device].broken;
                   });
}

Result cuEventDestroy_v2(EventHandle handle) {
  return WithEvent(EntryPoint::cuEventDestroy_v2, handle,
                   [](Machine& machine, const std::shared_ptr<Event>& event) {
                     machine.events.Remove(event->handle);
                     return Result::kSuccess;
                   });
}

Result cuEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  return ElapsedTime(EntryPoint::cuEventElapsedTime, milliseconds, start, end);
}

Result cuEventElapsedTime_v2(float* milliseconds, EventHandle start, EventHandle end) {
  return ElapsedTime(EntryPoint::cuEventElapsedTime_v2, milliseconds, start, end);
}

Result cuStreamWaitEvent(StreamHandle handle, EventHandle awaited, unsigned flags) {
  return WithEvent(EntryPoint::cuStreamWaitEvent, awaited,
                   [&](Machine& machine, const std::shared_ptr<Event>& event) {
                     const std::shared_ptr<Stream> stream = FindStream(machine, handle);
                     if (stream == nullptr) return Result::kInvalidHandle;
                     if (flags != 0) return Result::kNotSupported;
                     if (event->captured.has_value()) {
                       return WaitInCapture(stream, *event->captured);
                     }
                     if (stream->capture != nullptr) {
                       stream->capture->invalidated = true;
                       return Result::kCaptureIsolation;
                     }
                     Operation operation{.name = "wait for an event"};
                     if (event->recorded.has_value()) operation.after = {*event->recorded};
                     return Queue(machine, *stream, std::move(operation), nullptr);
                   });
}

}  // namespace ebbtide::hollow
