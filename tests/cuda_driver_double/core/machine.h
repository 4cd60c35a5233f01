// SPDX-License-Identifier: Apache-2.0
//
// The virtual machine behind the double: its devices, what lies in their memory, what is queued on
// them, and what a program has done wrong. It knows nothing of the driver's functions, so that
// another interface (the CUDA runtime, the management library) can stand on the same machine.
//
// There is one machine in a process; it is never destroyed, because programs use devices in static
// destructors. Threads: hold mutex() for everything but Get. Ownership: the machine owns all.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_MACHINE_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_MACHINE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/cuda_driver_double/core/address_space.h"
#include "tests/cuda_driver_double/core/calls.h"
#include "tests/cuda_driver_double/core/capture.h"
#include "tests/cuda_driver_double/core/configuration.h"
#include "tests/cuda_driver_double/core/handle_table.h"
#include "tests/cuda_driver_double/core/physical_memory.h"
#include "tests/cuda_driver_double/core/result.h"
#include "tests/cuda_driver_double/core/work.h"

namespace ebbtide::hollow {

struct Event {
  uintptr_t handle = 0;
  int device = 0;
  unsigned flags = 0;
  uint64_t records = 0;                                     // how many there were
  std::optional<Ticket> recorded;                           // the latest one
  std::optional<CapturePoint> captured;                     // that record, if it was in a capture
  std::chrono::steady_clock::time_point completed_at = {};  // of the latest record that is done
};

// A piece of memory and how many references to its handle the program has.
struct PhysicalHandle {
  std::shared_ptr<PhysicalMemory> memory;
  int64_t references = 0;
};

struct Device {
  std::shared_ptr<MemoryAccount> account;
  Result broken = Result::kSuccess;  // what every call gives once the device has failed for good
  int64_t context_references = 0;    // of the primary context, which is there while above 0
  unsigned context_flags = 0;
  std::shared_ptr<Stream> legacy_stream;                       // while the context is there
  std::map<uint64_t, std::shared_ptr<Stream>> thread_streams;  // per-thread default streams
  std::set<int> peers;                                         // those that may reach its memory
  uint64_t release_threshold_bytes = 0;  // of the default memory pool, kept only
};

// Memory of another process, how often it was opened, and whose it is.
struct ImportedMemory {
  int process = 0;
  uint64_t memory_id = 0;
  int64_t references = 0;
};

class Machine {
 public:
  static Machine& Get();

  std::mutex& mutex() { return mutex_; }

  // Makes the devices. Does nothing when it is already initialised.
  void Initialize();
  bool initialized() const { return initialized_; }

  // Everything as in a new process.
  void Reset();
  // Grows with each Reset: what a thread remembers of an earlier one counts no more.
  uint64_t generation() const { return generation_; }

  const Configuration& configuration() const { return configuration_; }
  // Takes effect at once, but for what shapes the devices: an initialised machine refuses it.
  absl::Status Configure(absl::string_view name, absl::string_view text);

  // Ends the primary context of a device: its streams, events and memory with it.
  void DestroyContext(int device);
  bool HasContext(int device) const { return devices[device].context_references > 0; }

  // The device fails for good. Its queued work is lost.
  void Break(int device, Result result);

  // Says on stderr what the program did wrong, remembers it, and with `strict` aborts.
  void ReportHazard(const std::string& text);
  const std::vector<std::string>& hazards() const { return hazards_; }
  void ClearHazards() { hazards_.clear(); }

  // Reports work that touches a range which goes away by `what`, and that the host does not know to
  // be done. Whoever gets the addresses next starts without a history.
  void LoseRange(const char* what, uintptr_t start, size_t bytes);

  // Memory with its addresses; `bytes` above 0. Errors: OutOfMemory.
  Result Allocate(int device, size_t bytes, ViewKind kind, uintptr_t* start);

  // A handle with one reference for a new piece of memory; one more for a piece that may have one.
  uint64_t AddHandle(PhysicalHandle handle);
  uint64_t RetainHandle(const std::shared_ptr<PhysicalMemory>& memory);

  // No other capture of the process ever has it.
  uint64_t NextCaptureId() { return ++last_capture_; }

  // Lets `device` reach what is allocated on `peer`, now and later, or no longer.
  // Errors: PeerAccessAlreadyEnabled, PeerAccessNotEnabled.
  Result EnablePeer(int device, int peer);
  Result DisablePeer(int device, int peer);

  Calls calls;
  std::vector<Device> devices;
  std::unique_ptr<AddressSpace> addresses;
  std::unique_ptr<Work> work;
  std::map<uint64_t, PhysicalHandle> physical_handles;
  HandleTable<Stream> streams{1, false};
  HandleTable<Event> events{2, false};
  HandleTable<Graph> graphs{3, false};
  HandleTable<Graph> executable_graphs{4, false};
  std::map<uintptr_t, size_t> registered_host;   // start to size
  std::map<uintptr_t, ImportedMemory> imported;  // by start
  std::set<uint64_t> freed_later;                // ids of views whose free is queued
  std::vector<std::weak_ptr<Capture>> captures;

 private:
  Machine();
  void ReadEnvironment();
  void ApplyToDevices();
  void OnRace(const Toucher& toucher, const Touch& touch, const Toucher& earlier);
  void OnFault(const Stream& stream, const Operation& operation, Result result);

  std::mutex mutex_;
  bool initialized_ = false;
  uint64_t generation_ = 1;
  uint64_t last_capture_ = 0;
  Configuration configuration_;
  std::vector<std::string> hazards_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_MACHINE_H_
