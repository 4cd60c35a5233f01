// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc between processes. A handle names the process and its descriptor of the
// memory file, which the other process opens under /proc.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

constexpr uint32_t kMagic = 0xEBB71DE0;

// What lies in the bytes of an IpcHandle.
struct HandleContent {
  uint32_t magic = kMagic;
  int32_t process = 0;
  int32_t descriptor = -1;
  uint32_t unused = 0;
  uint64_t memory_id = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(HandleContent) <= sizeof(IpcHandle));

// Opens the file that the handle names, as this process's own memory.
Result Open(const HandleContent& content, std::shared_ptr<PhysicalMemory>* memory) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", content.process, content.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return Result::kInvalidValue;
  const Result imported = PhysicalMemory::Import(descriptor, memory);
  close(descriptor);
  return imported;
}

}  // namespace

Result cuIpcGetMemHandle(IpcHandle* handle, DevicePointer address) {
  return Call(EntryPoint::cuIpcGetMemHandle, [&](Machine& machine) {
    const View* view = machine.addresses->Find(address);
    // Not for mapped memory, not for a pool's, and not for what came from another process.
    if (handle == nullptr || view == nullptr || view->kind != ViewKind::kAllocated) {
      return Result::kInvalidValue;
    }
    const HandleContent content{.process = getpid(),
                                .descriptor = view->memory->descriptor(),
                                .memory_id = view->memory->id(),
                                .bytes = view->bytes};
    *handle = IpcHandle();
    std::memcpy(handle->bytes, &content, sizeof(content));
    return Result::kSuccess;
  });
}

Result cuIpcOpenMemHandle_v2(DevicePointer* address, IpcHandle handle, unsigned flags) {
  return Call(EntryPoint::cuIpcOpenMemHandle_v2, [&](Machine& machine) {
    HandleContent content;
    std::memcpy(&content, handle.bytes, sizeof(content));
    if (address == nullptr || flags > 1 || content.magic != kMagic) return Result::kInvalidValue;
    if (content.process == getpid()) return Result::kInvalidContext;
    for (auto& [start, open] : machine.imported) {
      if (open.process != content.process || open.memory_id != content.memory_id) continue;
      ++open.references;
      *address = start;
      return Result::kSuccess;
    }
    std::shared_ptr<PhysicalMemory> memory;
    const Result opened = Open(content, &memory);
    if (opened != Result::kSuccess) return opened;
    if (!IsDevice(machine, memory->device())) return Result::kInvalidDevice;
    const std::vector<int> allowed = {memory->device(), CurrentDevice(machine)};
    const Result placed = machine.addresses->Place(ViewKind::kImported, content.bytes,
                                                   std::move(memory), allowed, address);
    if (placed == Result::kSuccess) {
      machine.imported[*address] = {content.process, content.memory_id, 1};
    }
    return placed;
  });
}

Result cuIpcCloseMemHandle(DevicePointer address) {
  return Call(EntryPoint::cuIpcCloseMemHandle, [&](Machine& machine) {
    const auto found = machine.imported.find(address);
    if (found == machine.imported.end()) return Result::kInvalidValue;
    if (--found->second.references > 0) return Result::kSuccess;
    const View* view = machine.addresses->Find(address);
    machine.LoseRange("closing", address, view->bytes);
    machine.addresses->Remove(address, {ViewKind::kImported});
    machine.imported.erase(found);
    return Result::kSuccess;
  });
}

Result cuIpcGetEventHandle(IpcHandle* /*handle*/, EventHandle /*event*/) {
  return Call(EntryPoint::cuIpcGetEventHandle, [](Machine&) { return Result::kNotSupported; });
}

Result cuIpcOpenEventHandle(EventHandle* /*event*/, IpcHandle /*handle*/) {
  return Call(EntryPoint::cuIpcOpenEventHandle, [](Machine&) { return Result::kNotSupported; });
}

}  // namespace ebbtide::hollow
