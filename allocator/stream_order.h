// SPDX-License-Identifier: Apache-2.0
//
// StreamOrder tells how far the work that a program has queued on a device's streams has come. A
// block that several streams used may be handed out again, or lose its memory, only after the work
// of all of them is done; on the stream that it belongs to the queue's own order is enough.
//
// A stream is named by a number that no other stream of the process ever gets: not by its handle,
// which the driver gives again after the stream was destroyed, and of which each thread means
// another stream where default streams are per thread. Stream 0 is the device's default stream; on
// a device without streams, such as host memory, it is the only one and everything on it is done.
//
// Thread safety: all functions may be called from any thread at any time. Ownership: an event
// belongs to the caller until Release. To replace: derive, then instantiate
// tests/allocator/stream_order_conformance.h with your class.

#ifndef EBBTIDE_ALLOCATOR_STREAM_ORDER_H_
#define EBBTIDE_ALLOCATOR_STREAM_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ebbtide {

using StreamId = uint64_t;
inline constexpr StreamId kDefaultStream = 0;

class StreamOrder {
 public:
  // What was queued on one stream when it was recorded. Implementations keep a pool of them.
  using Event = uintptr_t;

  virtual ~StreamOrder() = default;

  // Marks the present end of the queue of `stream`. Never waits for the device.
  // Errors: NotFound when the stream was destroyed (its work may still run: WaitForAll); others as
  // the driver says.
  virtual absl::StatusOr<Event> Record(StreamId stream) = 0;

  // True when all that was queued before the event is done. Never waits. A device that has failed
  // for good runs nothing any more: then it is true.
  virtual bool IsDone(Event event) = 0;

  // Waits on the calling thread until IsDone.
  virtual void Wait(Event event) = 0;

  // Waits until everything that was queued on any stream of the device is done, also on destroyed
  // ones.
  virtual void WaitForAll() = 0;

  // Takes the event back, done or not.
  virtual void Release(Event event) = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_STREAM_ORDER_H_
