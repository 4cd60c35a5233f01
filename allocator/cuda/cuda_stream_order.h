// SPDX-License-Identifier: Apache-2.0
//
// CudaStreamOrder is the StreamOrder of a CUDA device. Streams are known by the number that the
// driver gives each of them once and never again; Register finds it for a handle. A handle that the
// driver gives to a new stream, after the old one was destroyed, thus becomes another stream here.
//
// Default streams. The one that all threads share (handles 0 and CU_STREAM_LEGACY) is stream 0.
// CU_STREAM_PER_THREAD is a stream of the thread that registers it. No handle lets one thread name
// another thread's; there Record marks the end of the shared default stream instead, which waits
// for every thread's, and is thus right but later than it need be.
//
// Capture. A stream that is being captured into a graph has no present end: Record refuses it, and
// no function asks the driver for anything that it forbids during a capture, because that would
// destroy the capture. A thread that captures may call everything.
//
// Thread-safe. Ownership: it keeps the device's primary context alive and owns its events, which
// end with it; streams belong to the program. To replace: see stream_order.h.

#ifndef EBBTIDE_ALLOCATOR_CUDA_CUDA_STREAM_ORDER_H_
#define EBBTIDE_ALLOCATOR_CUDA_CUDA_STREAM_ORDER_H_

#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/cuda/context.h"
#include "allocator/stream_order.h"

namespace ebbtide {

class CudaStreamOrder : public StreamOrder {
 public:
  // For the streams of device number `ordinal`. `driver` must outlive the result.
  // Errors: Unimplemented for a driver that cannot tell streams apart (before CUDA 12.0); NotFound
  // for a device that is not there; others as the driver says.
  static absl::StatusOr<std::unique_ptr<CudaStreamOrder>> Create(const CudaDriver* driver,
                                                                 int ordinal);
  ~CudaStreamOrder() override;

  // The number of a stream that exists: always the same for one stream. To be asked each time that
  // a handle comes from the program. Errors: the driver's.
  absl::StatusOr<StreamId> Register(CuStream stream);

  // Says that the program is about to destroy a stream, or has. Without this, Record asks the
  // driver about a handle of which it may know nothing any more; it then says so, but its
  // documentation promises nothing.
  void Forget(StreamId stream);

  // Also FailedPrecondition when the stream is being captured, or when it was destroyed while some
  // stream is being captured: then there is no order to be had until that has ended.
  absl::StatusOr<Event> Record(StreamId stream) override;
  bool IsDone(Event event) override;
  void Wait(Event event) override;
  // During a capture the driver does not let anybody wait for the device. Then this waits for the
  // registered streams that are not captured, one by one.
  void WaitForAll() override;
  void Release(Event event) override;

 private:
  // Whether a thread still runs, and so whether its default stream still exists.
  struct ThreadLife;

  struct Stream {
    CuStream handle = nullptr;
    std::shared_ptr<ThreadLife> thread;  // of a thread's default stream, else null
  };

  explicit CudaStreamOrder(std::unique_ptr<CudaContext> context);

  static std::shared_ptr<ThreadLife> ThisThread();
  void Enter(StreamId id, CuStream handle);
  void ForgetEndedThreads();
  std::vector<std::pair<StreamId, Stream>> Streams() const;

  // These need a Scope.
  absl::StatusOr<bool> Exists(StreamId id, CuStream handle) const;
  absl::Status CheckNotCaptured(CuStream handle) const;
  bool AnyIsCaptured() const;
  absl::Status Gone(StreamId id);
  absl::StatusOr<Event> RecordOn(CuStream handle);
  absl::StatusOr<CuEvent> TakeEvent();

  const std::unique_ptr<CudaContext> context_;
  const CudaDriver& driver_;
  const CudaFunctions& cu_;

  mutable std::mutex mutex_;  // never held during a driver call
  absl::flat_hash_map<StreamId, Stream> streams_;
  absl::flat_hash_map<CuStream, StreamId> by_handle_;  // without threads' default streams
  std::vector<CuEvent> events_;                        // all there are
  std::vector<CuEvent> free_events_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CUDA_CUDA_STREAM_ORDER_H_
