// SPDX-License-Identifier: Apache-2.0
//
// A capture collects what is queued on its streams instead of running it. It begins in one stream;
// others join by waiting for an event that was recorded in it, and must be waited for before its
// end. The graph that results is one list in the order of the capture: an order that the
// program allowed, so that running it is one of the ways a device might.
//
// Threads: the caller serialises all calls. Ownership: its streams share a capture.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CAPTURE_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CAPTURE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cuda_driver_double/core/work.h"

namespace ebbtide::hollow {

// The numbers are those of the driver's modes.
enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

struct Graph {
  uintptr_t handle = 0;
  std::vector<Operation> operations;
};

struct CapturePoint {
  std::weak_ptr<Capture> capture;
  Clock before;  // of the capture's own operations
};

struct Capture {
  uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id thread;
  uint64_t origin = 0;  // stream id
  bool invalidated = false;
  std::map<uint64_t, Clock> clocks;  // by stream id
  std::vector<std::weak_ptr<Stream>> streams;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();

  void Join(const std::shared_ptr<Stream>& stream, const Clock& before);
  void Add(const Stream& stream, Operation operation);

  // Whether the origin waits, directly or not, for the work of every stream.
  bool IsJoined() const;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_CAPTURE_H_
