// SPDX-License-Identifier: Apache-2.0
//
// FakeDriver is a table of the driver's functions over a few maps: no library, no memory, every
// rule of the driver that its callers must keep checked, and a failure at whatever call a test asks
// for. It is stricter than a driver: what the driver's documentation leaves open, it refuses.
//
// The functions are plain C, so one FakeDriver is in use at a time: the last one made,
// until it is gone. Thread-safe:
// one lock. Ownership: it must outlive everything made with its functions.

#ifndef EBBTIDE_TESTS_ALLOCATOR_CUDA_FAKE_DRIVER_H_
#define EBBTIDE_TESTS_ALLOCATOR_CUDA_FAKE_DRIVER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocator/cuda/driver.h"

namespace ebbtide {

class FakeDriver {
 public:
  struct Options {
    int devices = 2;
    int64_t memory = int64_t{1} << 30;
    size_t granularity = size_t{2} << 20;
    std::set<int> attributes = {kCuAttributeVirtualMemory, kCuAttributePosixFileDescriptor,
                                kCuAttributeGpuDirectRdmaWithVirtualMemory};
    bool peers = true;             // devices can reach each other
    CuDevicePtr alloc_offset = 0;  // added to what cuMemAlloc returns
  };

  FakeDriver() : FakeDriver(Options{}) {}
  explicit FakeDriver(Options options);
  ~FakeDriver();

  // All functions; a test may set some to null before it makes a CudaDriver of them.
  static CudaFunctions Functions();

  // Call number `n` from now (1 is the next), counting only calls of `name` unless that is empty,
  // returns `result` and does nothing else; with `for_ever` all later ones do too. What only
  // restores the caller's state (pop, the capture mode) never fails unless it is named.
  void FailAt(int64_t n, CuResult result, bool for_ever = false, std::string name = "");
  // From now on every call returns `result`.
  void FailForGood(CuResult result) { FailAt(1, result, true); }
  void FailNever() { FailAt(0, kCuSuccess); }
  // True when the failure last asked for has happened.
  bool failed() const { return failed_; }

  // How often a function was called since the last ForgetCalls.
  int64_t Calls(const std::string& name) const;
  void ForgetCalls() { calls_.clear(); }

  // What exists now: handles, address ranges (what cuMemAlloc gave counts as a range), mappings and
  // the devices that may use each.
  struct Holdings {
    int64_t bytes = 0;
    size_t handles = 0;
    size_t ranges = 0;
    std::map<CuDevicePtr, std::set<int>> mappings;
    bool operator==(const Holdings&) const = default;
  };
  Holdings holdings() const;
  // The most bytes that ever existed at once.
  int64_t peak_bytes() const { return peak_bytes_; }
  // Of the mapping around `address`; none when nothing is mapped there.
  std::set<int> DevicesWithAccess(void* address) const;
  CuMemHandle HandleAt(void* address) const;
  const CuMemAllocationProp& last_properties() const { return last_properties_; }
  int retained_contexts() const { return retained_; }

  // The calling thread's state.
  static std::vector<CuContext>& ContextStack();
  static int& CaptureMode();
  CuContext PrimaryContext(int device) { return reinterpret_cast<CuContext>(&contexts_[device]); }

  // Streams. A handle is given again after Destroy.
  CuStream CreateStream(bool blocking = true);
  void DestroyStream(CuStream stream);  // its work goes on
  void DestroyStreamOfThread(std::thread::id thread);
  void GiveStreamOfThread(std::thread::id from, std::thread::id to);
  void Queue(CuStream stream);
  void FinishWork(CuStream stream);
  void FinishAllWork();  // also of destroyed streams
  void BeginCapture(CuStream stream) { State(stream)->capturing = true; }
  void EndCapture(CuStream stream) { State(stream)->capturing = false; }
  // True when somebody did what a capture forbids, or recorded on a captured stream.
  bool capture_broken() const { return capture_broken_; }
  int live_events() const { return live_events_; }

 private:
  friend struct FakeFunctions;

  struct Handle {
    int64_t size;
    bool released = false;
    int mappings = 0;
  };
  struct Mapping {
    int64_t size;
    CuMemHandle handle;
    std::set<int> access;
  };
  struct StreamState {
    unsigned long long id;
    bool blocking = true;
    bool exists = true;
    bool capturing = false;
    int64_t queued = 0;
    int64_t done = 0;
  };
  using StreamPtr = std::shared_ptr<StreamState>;
  struct Event {
    bool captured = false;
    std::vector<std::pair<StreamPtr, int64_t>> marks;
  };

  CuResult Enter(const std::string& name, bool restores = false);
  CuResult Unsafe();  // a call that a capture forbids to threads that are not relaxed
  bool AnyCapturing(bool only_blocking) const;
  StreamPtr State(CuStream stream);
  StreamPtr StateOrNull(CuStream stream);
  bool Covers(CuDevicePtr address, size_t size) const;
  bool InOneReservation(CuDevicePtr address, size_t size) const;
  void Collect(CuMemHandle handle);
  void Take(int64_t bytes) { peak_bytes_ = std::max(peak_bytes_, bytes_ += bytes); }

  const Options options_;
  FakeDriver* previous_ = nullptr;
  mutable std::recursive_mutex mutex_;
  std::map<std::string, int64_t> calls_;
  int64_t fail_in_ = 0;
  CuResult fail_result_ = kCuSuccess;
  bool fail_for_ever_ = false;
  std::string fail_name_;
  bool failed_ = false;

  std::vector<char> contexts_;  // only their addresses count
  int retained_ = 0;
  CuDevicePtr next_address_;
  CuMemHandle next_handle_ = 1;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
  CuMemAllocationProp last_properties_ = {};
  std::map<CuDevicePtr, int64_t> reservations_;
  std::map<CuDevicePtr, int64_t> allocations_;
  std::map<CuMemHandle, Handle> handles_;
  std::map<CuDevicePtr, Mapping> mappings_;

  unsigned long long next_stream_id_ = 10;
  std::vector<StreamPtr> slots_;  // handle: index + 16; null when destroyed
  std::vector<StreamPtr> all_streams_;
  StreamPtr legacy_;
  std::map<std::thread::id, StreamPtr> per_thread_;
  bool capture_broken_ = false;
  int live_events_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_CUDA_FAKE_DRIVER_H_
