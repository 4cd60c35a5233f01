// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/call.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ebbtide::hollow {
namespace {

enum Needs : int { kNothing = 0, kInit = 1, kAlive = 3, kContext = 7, kUnsafe = 8 };

struct Row {
  const char* name;
  int needs;
};

constexpr Row kRows[] = {
#define ENTRY(name, needs, parameters) {#name, needs},
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY
};

constexpr uintptr_t kContextBase = 0xEBB0'0C00'0000'0000;

// A driver that was initialised before a fork is of no use in the child.
std::atomic<bool> is_forked_child{false};

bool WatchForks() {
  return pthread_atfork(nullptr, nullptr, [] {
           // The lock may be held by a thread that the child does not have, so it is not asked.
           if (Machine::Get().initialized()) is_forked_child = true;
         }) == 0;
}

// Whether a capture somewhere makes calls illegal that might wait for its streams.
Result CheckCaptures(Machine& machine) {
  if (CurrentThread(machine).capture_mode == CaptureMode::kRelaxed) return Result::kSuccess;
  Result result = Result::kSuccess;
  for (const std::weak_ptr<Capture>& each : machine.captures) {
    const std::shared_ptr<Capture> capture = each.lock();
    if (capture == nullptr || capture->mode == CaptureMode::kRelaxed) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = own || (capture->mode == CaptureMode::kGlobal &&
                                 CurrentThread(machine).capture_mode == CaptureMode::kGlobal);
    if (!forbids) continue;
    capture->invalidated = true;
    result = Result::kCaptureUnsupported;
  }
  return result;
}

void Spend(std::chrono::microseconds time) {
  // Sleeping would take far longer than the microseconds that a call of a driver takes.
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace

// A program's static objects may call the driver after the thread's state has gone with the thread.
ThreadState& CurrentThread(const Machine& machine) {
  struct Holder {
    ThreadState state;
    uint64_t generation = 0;
    bool* gone;
    explicit Holder(bool* flag) : gone(flag) {}
    ~Holder() { *gone = true; }
  };
  thread_local bool gone = false;
  thread_local Holder mine(&gone);
  static auto* const last = new Holder(&gone);
  Holder& holder = gone ? *last : mine;
  if (holder.generation != machine.generation()) {
    holder.state = ThreadState();
    holder.generation = machine.generation();
  }
  return holder.state;
}

int CurrentDevice(const Machine& machine) { return CurrentThread(machine).contexts.back(); }

ContextHandle ContextOf(int device) { return ContextHandle{kContextBase + (device + 1) * 16u}; }

int DeviceOf(const Machine& machine, ContextHandle context) {
  for (int device = 0; IsDevice(machine, device); ++device) {
    if (ContextOf(device) == context) return device;
  }
  return -1;
}

std::shared_ptr<Stream> FindStream(Machine& machine, StreamHandle handle) {
  if (handle != StreamHandle::kDefault && handle != StreamHandle::kLegacy &&
      handle != StreamHandle::kPerThread) {
    return machine.streams.Find(static_cast<uintptr_t>(handle));
  }
  const ThreadState& thread = CurrentThread(machine);
  if (thread.contexts.empty() || !machine.HasContext(thread.contexts.back())) return nullptr;
  Device& device = machine.devices[thread.contexts.back()];
  if (handle != StreamHandle::kPerThread) return device.legacy_stream;
  const uint64_t id = pthread_self();
  std::shared_ptr<Stream>& stream = device.thread_streams[id];
  if (stream == nullptr) stream = machine.work->Open(thread.contexts.back(), /*blocking=*/true);
  return stream;
}

void OpenLegacyStream(Machine& machine, int device) {
  std::shared_ptr<Stream>& stream = machine.devices[device].legacy_stream;
  stream = machine.work->Open(device, /*blocking=*/true);
  stream->legacy = true;
}

namespace internal {

Calls::Decision Begin(EntryPoint entry) {
  static const bool watched = WatchForks();
  if (!watched || is_forked_child) return {.result = Result::kNotInitialized};
  Calls::Decision decision;
  {
    Machine& machine = Machine::Get();
    std::lock_guard<std::mutex> lock(machine.mutex());
    decision = machine.calls.Count(kRows[static_cast<int>(entry)].name);
  }
  if (decision.microseconds > 0) Spend(std::chrono::microseconds(decision.microseconds));
  return decision;
}

Result Check(Machine& machine, EntryPoint entry, const Calls::Decision& decision) {
  const int needs = kRows[static_cast<int>(entry)].needs;
  if ((needs & kInit) != 0 && !machine.initialized()) return Result::kNotInitialized;
  if (decision.result != Result::kSuccess) return decision.result;
  if (needs == kNothing) return Result::kSuccess;
  const ThreadState& thread = CurrentThread(machine);
  if ((needs & kContext) == kContext) {
    if (thread.contexts.empty()) return Result::kInvalidContext;
    if (!machine.HasContext(thread.contexts.back())) return Result::kContextIsDestroyed;
  }
  if ((needs & kAlive) == kAlive && !thread.contexts.empty()) {
    const Result broken = machine.devices[thread.contexts.back()].broken;
    if (broken != Result::kSuccess) return broken;
  }
  return (needs & kUnsafe) != 0 ? CheckCaptures(machine) : Result::kSuccess;
}

void End(Machine& machine, const Calls::Decision& decision) {
  if (decision.breaks == Result::kSuccess || !machine.initialized()) return;
  const ThreadState& thread = CurrentThread(machine);
  const int device = thread.contexts.empty() ? 0 : thread.contexts.back();
  if (IsDevice(machine, device)) machine.Break(device, decision.breaks);
}

}  // namespace internal

}  // namespace ebbtide::hollow
