// SPDX-License-Identifier: Apache-2.0
//
// ArenaMemory: the DeviceMemory of the runtime's tests. Granules of 4 KiB, so that small budgets
// mean something; no system call except to reserve; and memory that is given back is overwritten at
// once, so that a stale pointer reads wrong bytes and a comparison notices.
//
// Thread-safe: it holds no state. Ownership as DeviceMemory.

#ifndef EBBTIDE_TESTS_RUNTIME_ARENA_MEMORY_H_
#define EBBTIDE_TESTS_RUNTIME_ARENA_MEMORY_H_

#include <sys/mman.h>

#include <cstring>

#include "allocator/device_memory.h"

namespace ebbtide {

class ArenaMemory : public DeviceMemory {
 public:
  Bytes granularity() const override { return Bytes(4096); }
  bool supports_partial_decommit() const override { return true; }
  absl::StatusOr<void*> Reserve(Bytes size) override {
    void* address = mmap(nullptr, Count(size), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return absl::ResourceExhaustedError("no more addresses");
    return address;
  }
  using DeviceMemory::Commit;
  absl::Status Commit(void*, Bytes, Bytes) override { return absl::OkStatus(); }
  absl::Status Decommit(void* address, Bytes size) override {
    std::memset(address, 0xDB, Count(size));
    return absl::OkStatus();
  }
  absl::Status Unreserve(void* address, Bytes size) override {
    munmap(address, Count(size));
    return absl::OkStatus();
  }
  Bytes capacity() const override { return Bytes(int64_t{1} << 40); }
  bool is_host_accessible() const override { return true; }

 private:
  static size_t Count(Bytes bytes) { return static_cast<size_t>(bytes.count()); }
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_RUNTIME_ARENA_MEMORY_H_
