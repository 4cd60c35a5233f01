// SPDX-License-Identifier: Apache-2.0
//
// HostStreamOrder is the StreamOrder of memory that only the processor uses: an operator has run
// when its call returns, so nothing is ever queued, every event is done and no function waits.
//
// Thread-safe: it holds no state. Ownership: none, so releasing an event does nothing. To replace:
// see stream_order.h.

#ifndef EBBTIDE_ALLOCATOR_HOST_STREAM_ORDER_H_
#define EBBTIDE_ALLOCATOR_HOST_STREAM_ORDER_H_

#include "allocator/stream_order.h"

namespace ebbtide {

class HostStreamOrder : public StreamOrder {
 public:
  absl::StatusOr<Event> Record(StreamId stream) override {
    if (stream == kDefaultStream) return Event{0};
    return absl::NotFoundError("the host has no stream but the default one");
  }
  bool IsDone(Event /*event*/) override { return true; }
  void Wait(Event /*event*/) override {}
  void WaitForAll() override {}
  void Release(Event /*event*/) override {}
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HOST_STREAM_ORDER_H_
