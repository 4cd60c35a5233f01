// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStreams is a StreamOrder without a device: streams are queues of work on the clock of a
// SimulatedDevice. Each work says how long it takes and which memory it touches. The work of one
// stream runs in order, different streams run side by side, and a stream may wait for an event of
// another. Time passes when the program waits, calls the driver (SimulatedDevice charges its
// latency) or says so; whatever has come to its end by then is done.
//
// A seed chooses the order in which streams get ahead of each other: by Options::spread, which
// makes work slower than it says, and by CompleteSome, which makes it faster. So one program with
// a hundred seeds shows an allocator a hundred orders, each of them again when it fails.
//
// It watches its device: memory that queued work still touches must not be taken away. Work is
// checked when it is queued: all that it touches must have memory. The default stream is one like
// the others: it does not wait for them, as CUDA's legacy default stream would.
//
// An event that cannot come to pass cannot be waited for: a stream waits only for what was queued
// before, so that waits never make a circle.
//
// Thread-safe: one lock; with one thread all is deterministic. Ownership: the device must outlive
// it, and all events must be released before it goes. To replace: see stream_order.h.

#ifndef EBBTIDE_ALLOCATOR_SIMULATED_STREAMS_H_
#define EBBTIDE_ALLOCATOR_SIMULATED_STREAMS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "allocator/simulated_device.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace ebbtide {

class SimulatedStreams : public StreamOrder, private MemoryWatcher {
 public:
  struct Options {
    uint64_t seed = 1;
    // Work takes between once and `spread` times as long as it says. At least 1.
    double spread = 1;
  };

  // Memory that work reads or writes.
  struct Touch {
    const void* begin = nullptr;
    Bytes size;
  };

  struct Counters {
    int64_t records = 0;
    int64_t queries = 0;    // calls of IsDone
    int64_t waits = 0;      // calls of Wait and WaitForAll that found something to wait for
    Nanos waited{0};        // what those took
    int64_t completed = 0;  // works
    int64_t pending = 0;    // works now
    int64_t streams = 0;    // that exist, or are destroyed and still run
    int64_t live_events = 0;
    int64_t pooled_events = 0;  // made so far: the most that were ever live at once
  };

  explicit SimulatedStreams(SimulatedDevice* device) : SimulatedStreams(device, Options()) {}
  SimulatedStreams(SimulatedDevice* device, Options options);
  ~SimulatedStreams() override;  // aborts when events were not released
  SimulatedStreams(const SimulatedStreams&) = delete;
  SimulatedStreams& operator=(const SimulatedStreams&) = delete;

  // A new stream beside the default one. Its number is never given again.
  StreamId CreateStream();

  // What was queued on it still runs. REQUIRES: the stream exists and is not the default one.
  void DestroyStream(StreamId stream);

  // Queues work of `duration` that touches `touches`. REQUIRES: the stream exists, no touch is
  // empty, and all of each has memory behind it.
  void Queue(StreamId stream, Nanos duration, std::vector<Touch> touches = {});

  // What is queued on `stream` from now on starts after all that was queued before `event`. The
  // event may be released at once. REQUIRES: the stream exists.
  void StreamWaitEvent(StreamId stream, Event event);

  // Lets time pass: what comes to its end meanwhile is done.
  void Advance(Nanos duration);

  // Completes a number of works that the seed chooses, one at least, on streams that it chooses, at
  // this very moment, however long they said they would take. Returns the number; 0 when there are
  // none.
  int64_t CompleteSome();

  // Lets as much time pass as all works need.
  void CompleteAll();

  // The stream of a queued work that touches [begin, begin + size) and is not ordered before what
  // will be queued on `stream` next, by the order of one queue or by StreamWaitEvent; if there is
  // one, the memory must not be used on `stream` yet.
  std::optional<StreamId> FindConflict(const void* begin, Bytes size, StreamId stream);

  Counters counters();

  absl::StatusOr<Event> Record(StreamId stream) override;  // fails as device->failures() says
  bool IsDone(Event event) override;
  void Wait(Event event) override;
  void WaitForAll() override;
  void Release(Event event) override;

 private:
  // The place behind work number `sequence`, counted from 1, of a stream.
  struct Point {
    StreamId stream = kDefaultStream;
    uint64_t sequence = 0;
  };
  struct Work {
    Nanos queued{0};
    Nanos duration{0};
    std::vector<Touch> touches;
    std::optional<Point> after;  // does not start before
  };
  struct Stream {
    std::deque<Work> queue;
    uint64_t completed = 0;
    Nanos free_at{0};  // when its last work ended, or what its next one waited for
    bool destroyed = false;
    uint64_t last() const { return completed + queue.size(); }
  };
  struct EventSlot {
    Point point;
    uint32_t generation = 0;  // in the name of the event, so that a stale name is noticed
    bool live = false;
  };
  using Streams = std::map<StreamId, Stream>;  // in order, so that runs repeat

  void BeforeTaking(uintptr_t begin, uintptr_t end) override;

  Stream& Find(StreamId stream);
  EventSlot& FindEvent(Event event);
  bool IsComplete(const Point& point) const;
  bool CanRun(const Stream& stream) const;
  static Nanos EndOf(const Stream& stream);
  Streams::iterator NextToEnd();
  void Complete(Streams::iterator it, Nanos at);
  void CatchUp();
  void RunNext();
  int64_t CountPending() const;
  std::map<StreamId, uint64_t> OrderedBefore(StreamId stream) const;

  SimulatedDevice* const device_;
  VirtualClock* const clock_;
  const double spread_;
  std::mutex mutex_;  // guards all below; taken under the device's, never the other way round
  std::mt19937_64 random_;
  Streams streams_;
  StreamId next_stream_ = kDefaultStream + 1;
  std::vector<EventSlot> events_;
  std::vector<uint32_t> free_events_;
  Counters counters_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SIMULATED_STREAMS_H_
