// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/queueing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

// Where a range lies. Pageable memory of the host is all that the machine does not know.
enum class Place { kPageable, kRegistered, kPinned, kDevice };

Place PlaceOf(const Machine& machine, uintptr_t start) {
  if (const View* view = machine.addresses->Find(start)) {
    return view->kind == ViewKind::kPinnedHost ? Place::kPinned : Place::kDevice;
  }
  const auto next = machine.registered_host.upper_bound(start);
  if (next == machine.registered_host.begin()) return Place::kPageable;
  const auto& [first, bytes] = *std::prev(next);
  return start < first + bytes ? Place::kRegistered : Place::kPageable;
}

// Whether the driver would take the range for this side of a copy.
bool IsAcceptable(const Machine& machine, uintptr_t start, size_t size, bool must_be_known) {
  switch (PlaceOf(machine, start)) {
    case Place::kPageable:
      return start != 0 && !must_be_known;
    case Place::kRegistered:
      return true;
    case Place::kPinned:
    case Place::kDevice:
      return machine.addresses->IsCovered(start, size);
  }
  return false;
}

// The bytes of either side of a copy when it runs. A copy may use the access of the stream's device
// or of the memory's own, as copies between devices without peer access do.
Result Resolve(const Machine& machine, int device, Place place, uintptr_t start, size_t size,
               Access access, std::vector<Segment>* segments) {
  if (place == Place::kPageable || place == Place::kRegistered) {
    segments->push_back({reinterpret_cast<char*>(start), size});
    return Result::kSuccess;
  }
  const Result direct = machine.addresses->Resolve(start, size, device, access, segments);
  if (direct == Result::kSuccess) return direct;
  segments->clear();
  return machine.addresses->Resolve(start, size, kEveryOwner, access, segments);
}

void CopySegments(std::vector<Segment> targets, std::vector<Segment> sources) {
  size_t t = 0;
  size_t s = 0;
  while (t < targets.size() && s < sources.size()) {
    const size_t here = std::min(targets[t].size, sources[s].size);
    std::memmove(targets[t].bytes, sources[s].bytes, here);
    targets[t] = {targets[t].bytes + here, targets[t].size - here};
    sources[s] = {sources[s].bytes + here, sources[s].size - here};
    if (targets[t].size == 0) ++t;
    if (sources[s].size == 0) ++s;
  }
}

// Pieces and targets begin at multiples of the pattern, so it starts anew in each segment.
void FillSegment(const Segment& segment, const std::string& pattern) {
  std::memcpy(segment.bytes, pattern.data(), pattern.size());
  for (size_t filled = pattern.size(); filled < segment.size;) {
    const size_t more = std::min(filled, segment.size - filled);
    std::memcpy(segment.bytes + filled, segment.bytes, more);
    filled += more;
  }
}

// A blocking stream that captures would have to be waited for by the legacy stream.
bool WouldWaitForCapture(const Machine& machine, const Stream& stream) {
  if (!stream.legacy) return false;
  for (const std::weak_ptr<Capture>& each : machine.captures) {
    const std::shared_ptr<Capture> capture = each.lock();
    if (capture == nullptr) continue;
    for (const std::weak_ptr<Stream>& member : capture->streams) {
      const std::shared_ptr<Stream> other = member.lock();
      if (other == nullptr || !other->blocking || other->device != stream.device) continue;
      capture->invalidated = true;
      return true;
    }
  }
  return false;
}

}  // namespace

bool HasContext(const Machine& machine, ContextHandle context) {
  const int device = DeviceOf(machine, context);
  return device >= 0 && machine.HasContext(device);
}

Result Queue(Machine& machine, Stream& stream, Operation operation, Ticket* ticket) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return Result::kCaptureInvalidated;
    stream.capture->Add(stream, std::move(operation));
    return Result::kSuccess;
  }
  if (WouldWaitForCapture(machine, stream)) return Result::kCaptureImplicit;
  if (machine.devices[stream.device].broken != Result::kSuccess) {
    return machine.devices[stream.device].broken;
  }
  const Ticket queued = machine.work->Enqueue(stream, std::move(operation));
  if (ticket != nullptr) *ticket = queued;
  return Result::kSuccess;
}

Result QueueCopy(Machine& machine, StreamHandle handle, const Copy& copy, bool wait) {
  const std::shared_ptr<Stream> stream = FindStream(machine, handle);
  if (stream == nullptr) return Result::kInvalidHandle;
  if (copy.size == 0) return Result::kSuccess;
  const bool from_device =
      copy.kind == CopyKind::kDeviceToDevice || copy.kind == CopyKind::kDeviceToHost;
  const bool to_device =
      copy.kind == CopyKind::kDeviceToDevice || copy.kind == CopyKind::kHostToDevice;
  if (!IsAcceptable(machine, copy.source, copy.size, from_device) ||
      !IsAcceptable(machine, copy.target, copy.size, to_device)) {
    return Result::kInvalidValue;
  }
  const Place source = PlaceOf(machine, copy.source);
  const Place target = PlaceOf(machine, copy.target);
  // Pageable memory is read before the call returns, unless a graph reads it at each launch.
  std::shared_ptr<std::string> staged;
  if (source == Place::kPageable && stream->capture == nullptr) {
    staged = std::make_shared<std::string>(reinterpret_cast<const char*>(copy.source), copy.size);
  }
  Operation operation{.name = "copy", .touches = {{copy.target, copy.size, true}}};
  if (staged == nullptr) operation.touches.push_back({copy.source, copy.size, false});
  operation.run = [&machine, copy, source, target, staged, device = stream->device] {
    std::vector<Segment> from;
    std::vector<Segment> to;
    Result found = Resolve(machine, device, source, copy.source, copy.size, Access::kRead, &from);
    if (found != Result::kSuccess) return found;
    if (staged != nullptr) from = {{staged->data(), staged->size()}};
    found = Resolve(machine, device, target, copy.target, copy.size, Access::kReadWrite, &to);
    if (found == Result::kSuccess) CopySegments(std::move(to), std::move(from));
    return found;
  };
  Ticket ticket;
  const Result queued = Queue(machine, *stream, std::move(operation), &ticket);
  if (queued != Result::kSuccess) return queued;
  // Pageable memory is also written before the call returns.
  const bool host = source != Place::kDevice || target != Place::kDevice;
  if ((wait && host) || target == Place::kPageable) {
    machine.work->RunUntil(ticket);
    machine.work->Learn(ticket);
  }
  return machine.devices[stream->device].broken;
}

Result QueueFill(Machine& machine, StreamHandle handle, uintptr_t target, const void* value,
                 size_t unit, size_t count) {
  const std::shared_ptr<Stream> stream = FindStream(machine, handle);
  if (stream == nullptr) return Result::kInvalidHandle;
  const size_t size = unit * count;
  if (size == 0) return Result::kSuccess;
  if (!machine.addresses->IsCovered(target, size)) return Result::kInvalidValue;
  const std::string pattern(static_cast<const char*>(value), unit);
  Operation operation{.name = "fill", .touches = {{target, size, true}}};
  operation.run = [&machine, target, size, pattern, device = stream->device] {
    std::vector<Segment> segments;
    const Result found =
        machine.addresses->Resolve(target, size, device, Access::kReadWrite, &segments);
    if (found != Result::kSuccess) return found;
    for (const Segment& segment : segments) FillSegment(segment, pattern);
    return found;
  };
  const Result queued = Queue(machine, *stream, std::move(operation), nullptr);
  return queued != Result::kSuccess ? queued : machine.devices[stream->device].broken;
}

Result QueueTouch(Machine& machine, StreamHandle handle, const Touch& touch) {
  const std::shared_ptr<Stream> stream = FindStream(machine, handle);
  if (stream == nullptr) return Result::kInvalidHandle;
  Operation operation{.name = "kernel", .touches = {touch}};
  operation.run = [&machine, touch, device = stream->device] {
    std::vector<Segment> segments;
    const Access access = touch.writes ? Access::kReadWrite : Access::kRead;
    return machine.addresses->Resolve(touch.start, touch.bytes, device, access, &segments);
  };
  const Result queued = Queue(machine, *stream, std::move(operation), nullptr);
  return queued != Result::kSuccess ? queued : machine.devices[stream->device].broken;
}

}  // namespace ebbtide::hollow
