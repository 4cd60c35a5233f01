// SPDX-License-Identifier: Apache-2.0
// Streams: making and ending them, waiting for them, and what they say of themselves.

#include <algorithm>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

template <typename Body>
Result WithStream(EntryPoint entry, StreamHandle handle, Body&& body) {
  return Call(entry, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) {
      const bool named = handle > StreamHandle::kPerThread;
      return named ? Result::kInvalidHandle : Result::kInvalidContext;
    }
    return body(machine, *stream);
  });
}

template <typename T>
Result Give(T* out, T value) {
  if (out == nullptr) return Result::kInvalidValue;
  *out = value;
  return Result::kSuccess;
}

Result Create(Machine& machine, StreamHandle* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~kStreamFlagsAll) != 0) return Result::kInvalidValue;
  const bool blocking = (flags & kStreamNonBlocking) == 0;
  const std::shared_ptr<Stream> stream = machine.work->Open(CurrentDevice(machine), blocking);
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  stream->handle = machine.streams.Add(stream);
  *handle = StreamHandle{stream->handle};
  return Result::kSuccess;
}

// Waiting for a stream that captures is what a capture cannot record.
Result CheckNotCapturing(Stream& stream) {
  if (stream.capture == nullptr) return Result::kSuccess;
  stream.capture->invalidated = true;
  return Result::kCaptureUnsupported;
}

}  // namespace

Result cuStreamCreate(StreamHandle* stream, unsigned flags) {
  return Call(EntryPoint::cuStreamCreate,
              [&](Machine& machine) { return Create(machine, stream, flags, 0); });
}

Result cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  return Call(EntryPoint::cuStreamCreateWithPriority,
              [&](Machine& machine) { return Create(machine, stream, flags, priority); });
}

Result cuStreamDestroy_v2(StreamHandle handle) {
  return Call(EntryPoint::cuStreamDestroy_v2, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = machine.streams.Find(static_cast<uintptr_t>(handle));
    if (stream == nullptr) return Result::kInvalidHandle;
    if (stream->capture != nullptr) stream->capture->invalidated = true;
    machine.streams.Remove(stream->handle);
    machine.work->Close(*stream);
    return Result::kSuccess;
  });
}

Result cuStreamSynchronize(StreamHandle handle) {
  return WithStream(EntryPoint::cuStreamSynchronize, handle, [](Machine& machine, Stream& stream) {
    const Result allowed = CheckNotCapturing(stream);
    if (allowed != Result::kSuccess) return allowed;
    machine.work->RunUntil(stream.tail());
    machine.work->Learn(stream.tail());
    return machine.devices[stream.device].broken;
  });
}

Result cuStreamQuery(StreamHandle handle) {
  return WithStream(EntryPoint::cuStreamQuery, handle, [](Machine& machine, Stream& stream) {
    const Result allowed = CheckNotCapturing(stream);
    if (allowed != Result::kSuccess) return allowed;
    const bool done = machine.work->IsDone(stream.tail());
    if (done) machine.work->Learn(stream.tail());
    machine.work->RunByItself();
    if (machine.devices[stream.device].broken != Result::kSuccess) {
      return machine.devices[stream.device].broken;
    }
    return done ? Result::kSuccess : Result::kNotReady;
  });
}

Result cuStreamGetId(StreamHandle handle, uint64_t* id) {
  return WithStream(EntryPoint::cuStreamGetId, handle,
                    [&](Machine&, Stream& stream) { return Give(id, stream.id); });
}

Result cuStreamGetFlags(StreamHandle handle, unsigned* flags) {
  return WithStream(EntryPoint::cuStreamGetFlags, handle,
                    [&](Machine&, Stream& stream) { return Give(flags, stream.flags); });
}

Result cuStreamGetPriority(StreamHandle handle, int* priority) {
  return WithStream(EntryPoint::cuStreamGetPriority, handle,
                    [&](Machine&, Stream& stream) { return Give(priority, stream.priority); });
}

Result cuStreamGetCtx(StreamHandle handle, ContextHandle* context) {
  return WithStream(EntryPoint::cuStreamGetCtx, handle, [&](Machine&, Stream& stream) {
    return Give(context, ContextOf(stream.device));
  });
}

Result cuStreamGetDevice(StreamHandle handle, DeviceOrdinal* device) {
  return WithStream(EntryPoint::cuStreamGetDevice, handle,
                    [&](Machine&, Stream& stream) { return Give(device, stream.device); });
}

}  // namespace ebbtide::hollow
