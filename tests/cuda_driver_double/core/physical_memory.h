// SPDX-License-Identifier: Apache-2.0
//
// A piece of a virtual device's physical memory: real pages, which any number of views may show at
// different addresses. The pages are a memory file that is mapped once at a place of the core's own
// (`bytes()`); views are further mappings of the same pages. The file's descriptor is closed unless
// the piece may be shared with other processes, so that thousands of pieces need no descriptors.
//
// Threads: the caller serialises all calls. Ownership: pieces are shared; the last owner gives the
// pages and the device's account back.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PHYSICAL_MEMORY_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PHYSICAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

// How much of a device's memory is in use, in bytes.
struct MemoryAccount {
  size_t capacity = 0;
  size_t used = 0;
  size_t peak = 0;
};

inline constexpr int kHostMemory = -1;  // the device number of memory that no device has

class PhysicalMemory {
 public:
  struct Request {
    int device = kHostMemory;
    size_t bytes = 0;                                  // a multiple of the page size
    size_t charge_bytes = 0;                           // against `account`
    bool shareable = false;                            // keeps the descriptor
    bool rdma_capable = false;                         // remembered only
    std::shared_ptr<MemoryAccount> account = nullptr;  // null: nobody pays
  };

  // Errors: OutOfMemory when the account or the system has no more.
  static Result Create(const Request& request, std::shared_ptr<PhysicalMemory>* memory);

  // The piece of another process (or of this one) whose file `descriptor` is; it stays the
  // caller's. Nobody pays: the process that made the piece has. Errors: InvalidValue when it is no
  // such file.
  static Result Import(int descriptor, std::shared_ptr<PhysicalMemory>* memory);

  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  uint64_t id() const { return id_; }  // no other piece of the process ever has it
  int device() const { return request_.device; }
  size_t size() const { return request_.bytes; }
  size_t charge() const { return request_.charge_bytes; }
  bool shareable() const { return request_.shareable; }
  bool rdma_capable() const { return request_.rdma_capable; }
  int descriptor() const { return descriptor_; }  // -1 unless shareable
  char* bytes() const { return bytes_; }

  // Shows [offset, offset + size) at `address`, in place of what is mapped there, without access.
  // All are multiples of the page size. False when the system refuses.
  bool ShowAt(uintptr_t address, size_t offset, size_t size) const;

 private:
  PhysicalMemory(const Request& request, int descriptor, char* bytes);

  const Request request_;
  const uint64_t id_;
  const int descriptor_;
  char* const bytes_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PHYSICAL_MEMORY_H_
