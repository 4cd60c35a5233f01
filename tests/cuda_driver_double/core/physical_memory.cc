// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

namespace ebbtide::hollow {
namespace {

// What a descriptor's link in /proc says, so that an import can tell our files and their device.
constexpr char kNameFormat[] = "ebbtide-double-device%d";
constexpr char kLinkFormat[] = "/memfd:ebbtide-double-device%d";

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Maps a whole file; null when the system refuses.
char* MapFile(int descriptor, size_t size) {
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return bytes == MAP_FAILED ? nullptr : static_cast<char*>(bytes);
}

}  // namespace

Result PhysicalMemory::Create(const Request& request, std::shared_ptr<PhysicalMemory>* memory) {
  MemoryAccount* account = request.account.get();
  if (account != nullptr && account->used + request.charge_bytes > account->capacity) {
    return Result::kOutOfMemory;
  }
  char name[64];
  std::snprintf(name, sizeof(name), kNameFormat, request.device);
  int descriptor = memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0) return Result::kOutOfMemory;
  char* bytes = ftruncate(descriptor, static_cast<off_t>(request.bytes)) == 0
                    ? MapFile(descriptor, request.bytes)
                    : nullptr;
  if (bytes == nullptr || !request.shareable) {
    close(descriptor);
    descriptor = -1;
  }
  if (bytes == nullptr) return Result::kOutOfMemory;
  memory->reset(new PhysicalMemory(request, descriptor, bytes));
  if (account != nullptr) {
    account->used += request.charge_bytes;
    account->peak = std::max(account->peak, account->used);
  }
  return Result::kSuccess;
}

Result PhysicalMemory::Import(int descriptor, std::shared_ptr<PhysicalMemory>* memory) {
  char link[64];
  char target[128];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, target, sizeof(target) - 1);
  if (length < 0) return Result::kInvalidValue;
  target[length] = '\0';
  Request request{.shareable = true};
  struct stat status;
  if (std::sscanf(target, kLinkFormat, &request.device) != 1 || fstat(descriptor, &status) != 0 ||
      status.st_size <= 0) {
    return Result::kInvalidValue;
  }
  request.bytes = static_cast<size_t>(status.st_size);
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return Result::kOutOfMemory;
  char* bytes = MapFile(own, request.bytes);
  if (bytes == nullptr) {
    close(own);
    return Result::kOutOfMemory;
  }
  memory->reset(new PhysicalMemory(request, own, bytes));
  return Result::kSuccess;
}

PhysicalMemory::PhysicalMemory(const Request& request, int descriptor, char* bytes)
    : request_(request), id_(NextId()), descriptor_(descriptor), bytes_(bytes) {}

PhysicalMemory::~PhysicalMemory() {
  munmap(bytes_, request_.bytes);
  if (descriptor_ >= 0) close(descriptor_);
  if (request_.account != nullptr) request_.account->used -= request_.charge_bytes;
}

bool PhysicalMemory::ShowAt(uintptr_t address, size_t offset, size_t size) const {
  // An old size of 0 duplicates a shared mapping instead of moving it.
  void* target = reinterpret_cast<void*>(address);
  void* view = mremap(bytes_ + offset, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, target);
  return view != MAP_FAILED && mprotect(target, size, PROT_NONE) == 0;
}

}  // namespace ebbtide::hollow
