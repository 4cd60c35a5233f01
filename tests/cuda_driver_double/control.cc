// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/control.h"

#include <mutex>
#include <string>

#include "tests/cuda_driver_double/call.h"
#include "tests/cuda_driver_double/queueing.h"

namespace ebbtide::hollow {
namespace {

std::string& LastError() {
  thread_local std::string error;
  return error;
}

void CountDevices(const Machine& machine, EbbtideDoubleCounts* counts) {
  for (const Device& device : machine.devices) {
    counts->bytes_committed += static_cast<int64_t>(device.account->used);
    counts->bytes_peak += static_cast<int64_t>(device.account->peak);
    counts->contexts += device.context_references > 0 ? 1 : 0;
    counts->context_references += device.context_references;
    counts->devices_broken += device.broken != Result::kSuccess ? 1 : 0;
  }
}

void CountMemory(const Machine& machine, EbbtideDoubleCounts* counts) {
  const AddressSpace& addresses = *machine.addresses;
  for (const auto& [number, handle] : machine.physical_handles) {
    ++counts->handles;
    counts->handle_references += handle.references;
  }
  counts->mappings = addresses.CountViews(ViewKind::kMapped);
  counts->reservations = addresses.CountReservations();
  counts->allocations =
      addresses.CountViews(ViewKind::kAllocated) + addresses.CountViews(ViewKind::kPooled);
  counts->host_allocations = addresses.CountViews(ViewKind::kPinnedHost);
  counts->host_registrations = machine.registered_host.size();
  counts->imported_allocations = addresses.CountViews(ViewKind::kImported);
}

// Runs `body` with the machine locked.
template <typename Body>
auto Locked(Body&& body) {
  Machine& machine = Machine::Get();
  std::lock_guard<std::mutex> lock(machine.mutex());
  return body(machine);
}

}  // namespace
}  // namespace ebbtide::hollow

using ebbtide::hollow::IsDevice;
using ebbtide::hollow::Locked;
using ebbtide::hollow::Machine;
using ebbtide::hollow::Result;

int ebbtide_double_set(const char* name, const char* value) {
  return Locked([&](Machine& machine) {
    const absl::Status status = machine.Configure(name, value);
    ebbtide::hollow::LastError() = std::string(status.message());
    return status.ok() ? 0 : -1;
  });
}

const char* ebbtide_double_error() { return ebbtide::hollow::LastError().c_str(); }

void ebbtide_double_reset() {
  Locked([](Machine& machine) { machine.Reset(); });
}

void ebbtide_double_count(EbbtideDoubleCounts* counts) {
  Locked([&](Machine& machine) {
    *counts = {};
    counts->hazards = machine.hazards().size();
    if (!machine.initialized()) return;
    ebbtide::hollow::CountDevices(machine, counts);
    ebbtide::hollow::CountMemory(machine, counts);
    counts->streams = machine.streams.objects().size();
    counts->events = machine.events.objects().size();
    counts->graphs = machine.graphs.objects().size() + machine.executable_graphs.objects().size();
    counts->operations_pending = machine.work->CountPending();
  });
}

int64_t ebbtide_double_bytes_committed(int device) {
  return Locked([&](Machine& machine) -> int64_t {
    return IsDevice(machine, device) ? machine.devices[device].account->used : -1;
  });
}

int64_t ebbtide_double_bytes_peak(int device) {
  return Locked([&](Machine& machine) -> int64_t {
    return IsDevice(machine, device) ? machine.devices[device].account->peak : -1;
  });
}

int64_t ebbtide_double_calls(const char* name) {
  return Locked([&](Machine& machine) { return machine.calls.count(name); });
}

void ebbtide_double_reset_calls() {
  Locked([](Machine& machine) { machine.calls.ResetCounts(); });
}

const char* ebbtide_double_hazard(size_t index) {
  return Locked([&](Machine& machine) -> const char* {
    thread_local std::string text;
    if (index >= machine.hazards().size()) return nullptr;
    text = machine.hazards()[index];
    return text.c_str();
  });
}

void ebbtide_double_clear_hazards() {
  Locked([](Machine& machine) { machine.ClearHazards(); });
}

int ebbtide_double_touch(void* stream, uint64_t address, size_t size, int writes) {
  return Locked([&](Machine& machine) {
    if (!machine.initialized()) return static_cast<int>(Result::kNotInitialized);
    const ebbtide::hollow::StreamHandle handle{reinterpret_cast<uintptr_t>(stream)};
    return static_cast<int>(QueueTouch(machine, handle, {address, size, writes != 0}));
  });
}

int ebbtide_double_break(int device, int code) {
  return Locked([&](Machine& machine) {
    const Result result{code};
    if (!IsDevice(machine, device)) return static_cast<int>(Result::kInvalidDevice);
    if (code == 0 || ebbtide::hollow::ResultName(result) == nullptr) {
      return static_cast<int>(Result::kInvalidValue);
    }
    machine.Break(device, result);
    return static_cast<int>(Result::kSuccess);
  });
}

void ebbtide_double_run_all() {
  Locked([](Machine& machine) {
    if (machine.initialized()) machine.work->RunAll();
  });
}
