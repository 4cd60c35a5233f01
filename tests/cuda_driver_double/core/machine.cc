// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "tests/cuda_driver_double/core/pages.h"

namespace ebbtide::hollow {
namespace {

// cuMemAlloc rounds to this unit; larger ones of real drivers depend on the device.
constexpr size_t kAllocationUnitBytes = 512;

constexpr uint64_t kPhysicalHandleBase = 0xEBB0'0D00'0000'0000;

}  // namespace

Machine& Machine::Get() {
  static Machine* const machine = new Machine();
  return *machine;
}

Machine::Machine() { ReadEnvironment(); }

void Machine::ReadEnvironment() {
  absl::StatusOr<Configuration> configuration = Configuration::FromEnvironment();
  EBB_CHECK(configuration.ok()) << "EBBTIDE_DOUBLE_" << configuration.status().message();
  configuration_ = *std::move(configuration);
  calls.SetFailures(configuration_.failures);
  calls.SetBreaks(configuration_.breaks);
  calls.SetLatencies(configuration_.latencies);
  ApplyToDevices();
}

void Machine::ApplyToDevices() {
  streams.set_reuse(configuration_.reuse_handles);
  events.set_reuse(configuration_.reuse_handles);
  for (Device& device : devices) device.account->capacity = configuration_.capacity_bytes;
}

void Machine::Initialize() {
  if (initialized_) return;
  initialized_ = true;
  addresses =
      std::make_unique<AddressSpace>(configuration_.granularity_bytes, configuration_.host_access);
  work = std::make_unique<Work>(
      configuration_.async_seed,
      [this](const Stream& stream, const Operation& operation, Result result) {
        OnFault(stream, operation, result);
      },
      [this](const Toucher& toucher, const Touch& touch, const Toucher& earlier) {
        OnRace(toucher, touch, earlier);
      });
  devices.resize(configuration_.devices);
  for (Device& device : devices) {
    device.account = std::make_shared<MemoryAccount>();
    device.account->capacity = configuration_.capacity_bytes;
  }
}

void Machine::Reset() {
  ++generation_;
  initialized_ = false;
  devices.clear();
  ReadEnvironment();
  captures.clear();
  streams = HandleTable<Stream>(1, configuration_.reuse_handles);
  events = HandleTable<Event>(2, configuration_.reuse_handles);
  graphs = HandleTable<Graph>(3, false);
  executable_graphs = HandleTable<Graph>(4, false);
  work.reset();
  physical_handles.clear();
  registered_host.clear();
  imported.clear();
  freed_later.clear();
  addresses.reset();
  hazards_.clear();
  calls.ResetCounts();
}

absl::Status Machine::Configure(absl::string_view name, absl::string_view text) {
  if (initialized_ && (name == "devices" || name == "granularity" || name == "host_access")) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " cannot change under an initialised machine: reset it first"));
  }
  Configuration changed = configuration_;
  const absl::Status status = changed.Set(name, text);
  if (!status.ok()) return status;
  configuration_ = std::move(changed);
  // Rules count from when they are set, so one is not set again because of another.
  if (name == "fail") calls.SetFailures(configuration_.failures);
  if (name == "break") calls.SetBreaks(configuration_.breaks);
  if (name == "async" && work != nullptr) work->SetSeed(configuration_.async_seed);
  if (name == "latency") calls.SetLatencies(configuration_.latencies);
  ApplyToDevices();
  return absl::OkStatus();
}

void Machine::DestroyContext(int number) {
  Device& device = devices[number];
  work->RunDevice(number);
  work->LearnDevice(number);
  const auto all_streams = streams.objects();
  for (const auto& [handle, stream] : all_streams) {
    if (stream->device != number) continue;
    work->Close(*stream);
    streams.Remove(handle);
  }
  const auto all_events = events.objects();
  for (const auto& [handle, event] : all_events) {
    if (event->device == number) events.Remove(handle);
  }
  if (device.legacy_stream != nullptr) work->Close(*device.legacy_stream);
  for (const auto& [thread, stream] : device.thread_streams) work->Close(*stream);
  device.legacy_stream.reset();
  device.thread_streams.clear();
  std::vector<std::pair<uintptr_t, size_t>> ranges;
  for (const auto& [start, view] : addresses->views()) {
    // What Map made stays: it belongs to the process, not to the context.
    if (view.device() == number && view.kind != ViewKind::kMapped) {
      ranges.emplace_back(start, view.bytes);
    }
  }
  for (const auto& [start, bytes] : ranges) {
    LoseRange("the end of its context", start, bytes);
    addresses->Remove(start, {ViewKind::kAllocated, ViewKind::kPooled, ViewKind::kImported});
    imported.erase(start);
  }
  device.context_references = 0;
  device.context_flags = 0;
  device.peers.clear();
  device.broken = Result::kSuccess;
}

void Machine::Break(int device, Result result) {
  if (devices[device].broken == Result::kSuccess) devices[device].broken = result;
  work->Abandon(device);
}

void Machine::ReportHazard(const std::string& text) {
  const std::string line = absl::StrCat("[ebbtide double] ", text, "\n");
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;  // nobody is left to tell
  hazards_.push_back(text);
  if (configuration_.strict) std::abort();
}

void Machine::LoseRange(const char* what, uintptr_t start, size_t bytes) {
  const std::optional<Toucher> user = work->FindUser(start, bytes);
  work->Forget(start, bytes);
  if (!user.has_value()) return;
  ReportHazard(absl::StrFormat("used after %s by work queued on stream %d: %s of [%#x, %#x)", what,
                               user->stream, user->name, start, start + bytes));
}

Result Machine::Allocate(int device, size_t bytes, ViewKind kind, uintptr_t* start) {
  if (bytes > configuration_.capacity_bytes) return Result::kOutOfMemory;
  const size_t charge =
      (bytes + kAllocationUnitBytes - 1) / kAllocationUnitBytes * kAllocationUnitBytes;
  std::shared_ptr<PhysicalMemory> memory;
  // Shareable, because any of it can be asked for its interprocess handle later.
  const Result created = PhysicalMemory::Create({.device = device,
                                                 .bytes = PageRoundUp(bytes),
                                                 .charge_bytes = charge,
                                                 .shareable = kind == ViewKind::kAllocated,
                                                 .account = devices[device].account},
                                                &memory);
  if (created != Result::kSuccess) return created;
  std::vector<int> allowed(devices[device].peers.begin(), devices[device].peers.end());
  allowed.push_back(device);
  return addresses->Place(kind, bytes, std::move(memory), allowed, start);
}

uint64_t Machine::AddHandle(PhysicalHandle handle) {
  const uint64_t number = kPhysicalHandleBase + handle.memory->id() * 16;
  physical_handles[number] = std::move(handle);
  return number;
}

uint64_t Machine::RetainHandle(const std::shared_ptr<PhysicalMemory>& memory) {
  PhysicalHandle& handle = physical_handles[kPhysicalHandleBase + memory->id() * 16];
  handle.memory = memory;
  ++handle.references;
  return kPhysicalHandleBase + memory->id() * 16;
}

Result Machine::EnablePeer(int device, int peer) {
  if (!devices[peer].peers.insert(device).second) return Result::kPeerAccessAlreadyEnabled;
  addresses->AllowPeer(peer, device, Access::kReadWrite);
  return Result::kSuccess;
}

Result Machine::DisablePeer(int device, int peer) {
  if (devices[peer].peers.erase(device) == 0) return Result::kPeerAccessNotEnabled;
  addresses->AllowPeer(peer, device, Access::kNone);
  return Result::kSuccess;
}

void Machine::OnRace(const Toucher& toucher, const Touch& touch, const Toucher& earlier) {
  ReportHazard(absl::StrFormat(
      "race: %s on stream %d %s [%#x, %#x), and nothing orders it after %s on stream %d",
      toucher.name, toucher.stream, touch.writes ? "writes" : "reads", touch.start,
      touch.start + touch.bytes, earlier.name, earlier.stream));
}

void Machine::OnFault(const Stream& stream, const Operation& operation, Result result) {
  Break(stream.device, result);
  std::string ranges;
  for (const Touch& touch : operation.touches) {
    absl::StrAppendFormat(&ranges, " [%#x, %#x)", touch.start, touch.start + touch.bytes);
  }
  ReportHazard(absl::StrFormat("device %d failed: %s by %s on stream %d, which touches%s",
                               stream.device, ResultText(result), operation.name, stream.id,
                               ranges));
}

}  // namespace ebbtide::hollow
