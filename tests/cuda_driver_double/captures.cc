// SPDX-License-Identifier: Apache-2.0
// Captures of streams, and the graphs that they give.

#include <thread>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

CaptureStatus StatusOf(const Stream& stream) {
  if (stream.capture == nullptr) return CaptureStatus::kNone;
  return stream.capture->invalidated ? CaptureStatus::kInvalidated : CaptureStatus::kActive;
}

bool IsMode(CaptureMode mode) {
  return mode == CaptureMode::kGlobal || mode == CaptureMode::kThreadLocal ||
         mode == CaptureMode::kRelaxed;
}

// Nodes have no handles here, so they cannot be asked for.
Result GiveInfo(EntryPoint entry, StreamHandle handle, CaptureStatus* status, uint64_t* id,
                bool asks_for_nodes) {
  return Call(entry, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (status == nullptr) return Result::kInvalidValue;
    if (asks_for_nodes) return Result::kNotSupported;
    *status = StatusOf(*stream);
    if (id != nullptr && *status == CaptureStatus::kActive) *id = stream->capture->id;
    return Result::kSuccess;
  });
}

// All streams of a capture run their work again.
void Release(Machine& machine, const std::shared_ptr<Capture>& capture) {
  for (const std::weak_ptr<Stream>& member : capture->streams) {
    const std::shared_ptr<Stream> stream = member.lock();
    if (stream != nullptr) stream->capture.reset();
  }
  std::erase_if(machine.captures, [&capture](const std::weak_ptr<Capture>& each) {
    return each.expired() || each.lock() == capture;
  });
}

}  // namespace

Result cuStreamBeginCapture_v2(StreamHandle handle, CaptureMode mode) {
  return Call(EntryPoint::cuStreamBeginCapture_v2, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (!IsMode(mode)) return Result::kInvalidValue;
    if (stream->legacy) return Result::kCaptureUnsupported;
    if (stream->capture != nullptr) return Result::kIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->id = machine.NextCaptureId();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream->id;
    capture->Join(stream, {});
    stream->capture = capture;
    machine.captures.push_back(capture);
    return Result::kSuccess;
  });
}

Result cuStreamEndCapture(StreamHandle handle, GraphHandle* graph) {
  return Call(EntryPoint::cuStreamEndCapture, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (graph == nullptr) return Result::kInvalidValue;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) return Result::kIllegalState;
    if (capture->mode != CaptureMode::kRelaxed && capture->thread != std::this_thread::get_id()) {
      return Result::kCaptureWrongThread;
    }
    if (capture->origin != stream->id) {
      capture->invalidated = true;
      return Result::kCaptureUnmatched;
    }
    *graph = GraphHandle{};
    Release(machine, capture);
    if (capture->invalidated) return Result::kCaptureInvalidated;
    if (!capture->IsJoined()) return Result::kCaptureUnjoined;
    capture->graph->handle = machine.graphs.Add(capture->graph);
    *graph = GraphHandle{capture->graph->handle};
    return Result::kSuccess;
  });
}

Result cuStreamIsCapturing(StreamHandle handle, CaptureStatus* status) {
  return Call(EntryPoint::cuStreamIsCapturing, [&](Machine& machine) {
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (stream == nullptr) return Result::kInvalidHandle;
    if (status == nullptr) return Result::kInvalidValue;
    *status = StatusOf(*stream);
    return Result::kSuccess;
  });
}

Result cuStreamGetCaptureInfo_v2(StreamHandle stream, CaptureStatus* status, uint64_t* id,
                                 GraphHandle* graph, const uintptr_t** dependencies,
                                 size_t* count) {
  const bool nodes = graph != nullptr || dependencies != nullptr || count != nullptr;
  return GiveInfo(EntryPoint::cuStreamGetCaptureInfo_v2, stream, status, id, nodes);
}

Result cuStreamGetCaptureInfo_v3(StreamHandle stream, CaptureStatus* status, uint64_t* id,
                                 GraphHandle* graph, const uintptr_t** dependencies,
                                 const void** edges, size_t* count) {
  const bool nodes =
      graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr;
  return GiveInfo(EntryPoint::cuStreamGetCaptureInfo_v3, stream, status, id, nodes);
}

Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  return Call(EntryPoint::cuThreadExchangeStreamCaptureMode, [&](Machine& machine) {
    if (mode == nullptr || !IsMode(*mode)) return Result::kInvalidValue;
    std::swap(*mode, CurrentThread(machine).capture_mode);
    return Result::kSuccess;
  });
}

Result cuGraphInstantiateWithFlags(GraphExecHandle* executable, GraphHandle graph, uint64_t flags) {
  return Call(EntryPoint::cuGraphInstantiateWithFlags, [&](Machine& machine) {
    const std::shared_ptr<Graph> found = machine.graphs.Find(static_cast<uintptr_t>(graph));
    if (executable == nullptr || found == nullptr || flags != 0) return Result::kInvalidValue;
    auto copy = std::make_shared<Graph>(*found);
    copy->handle = machine.executable_graphs.Add(copy);
    *executable = GraphExecHandle{copy->handle};
    return Result::kSuccess;
  });
}

Result cuGraphLaunch(GraphExecHandle executable, StreamHandle handle) {
  return Call(EntryPoint::cuGraphLaunch, [&](Machine& machine) {
    const std::shared_ptr<Graph> graph =
        machine.executable_graphs.Find(static_cast<uintptr_t>(executable));
    const std::shared_ptr<Stream> stream = FindStream(machine, handle);
    if (graph == nullptr) return Result::kInvalidValue;
    if (stream == nullptr) return Result::kInvalidHandle;
    for (const Operation& operation : graph->operations) {
      const Result queued = Queue(machine, *stream, operation, nullptr);
      if (queued != Result::kSuccess) return queued;
    }
    return machine.devices[stream->device].broken;
  });
}

Result cuGraphExecDestroy(GraphExecHandle executable) {
  return Call(EntryPoint::cuGraphExecDestroy, [&](Machine& machine) {
    const auto handle = static_cast<uintptr_t>(executable);
    if (machine.executable_graphs.Find(handle) == nullptr) return Result::kInvalidValue;
    machine.executable_graphs.Remove(handle);
    return Result::kSuccess;
  });
}

Result cuGraphDestroy(GraphHandle graph) {
  return Call(EntryPoint::cuGraphDestroy, [&](Machine& machine) {
    const auto handle = static_cast<uintptr_t>(graph);
    if (machine.graphs.Find(handle) == nullptr) return Result::kInvalidValue;
    machine.graphs.Remove(handle);
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
