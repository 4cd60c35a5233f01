// SPDX-License-Identifier: Apache-2.0

#include "allocator/host_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

constexpr Bytes kHugePage = 2_MiB;

// The smallest unit there is, so that hardly anything is lost at the ends of blocks that stay.
Bytes PageSize() {
  static const Bytes size(sysconf(_SC_PAGESIZE));
  return size;
}

absl::Status ErrnoStatus(const char* call, Bytes size) {
  const int error = errno;
  const std::string text = absl::StrCat(call, " of ", FormatBytes(size), ": ", strerror(error));
  if (error == ENOMEM || error == EAGAIN) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

absl::Status CheckGranules(const void* address, Bytes size) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | static_cast<uintptr_t>(size.count());
  if (size > Bytes(0) && bits % PageSize().count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("range is not a positive number of whole ",
                                                 FormatBytes(PageSize()),
                                                 " pages: ", size.count()));
}

}  // namespace

Bytes HostMemory::granularity() const { return PageSize(); }

Bytes HostMemory::preferred_unit() const { return kHugePage; }

absl::StatusOr<void*> HostMemory::Reserve(Bytes size) {
  absl::Status status = CheckGranules(nullptr, size);
  if (!status.ok()) return status;
  // The kernel aligns to its pages only: take one huge page more, then give both ends back.
  if (size > Bytes::Max() - kHugePage) return absl::ResourceExhaustedError("no such address range");
  const size_t padded = static_cast<size_t>((size + kHugePage).count());
  void* mapped =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return ErrnoStatus("reserving addresses", size);
  const auto first = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t huge = kHugePage.count();
  const uintptr_t begin = (first + huge - 1) / huge * huge;
  const uintptr_t end = begin + size.count();
  if (begin > first) munmap(mapped, begin - first);
  if (first + padded > end) munmap(reinterpret_cast<void*>(end), first + padded - end);
  // Only a wish: kernels without huge pages refuse it, and all works without.
  madvise(reinterpret_cast<void*>(begin), size.count(), MADV_HUGEPAGE);
  return reinterpret_cast<void*>(begin);
}

// To the kernel memory is pages, whatever the size it came in.
absl::Status HostMemory::Commit(void* address, Bytes size, Bytes piece) {
  absl::Status status = CheckGranules(address, size);
  if (!status.ok()) return status;
  status = CheckGranules(nullptr, piece);
  if (!status.ok()) return status;
  if (size % piece != Bytes(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatBytes(size), " are no pieces of ", FormatBytes(piece)));
  }
  if (mprotect(address, size.count(), PROT_READ | PROT_WRITE) != 0) {
    return ErrnoStatus("committing memory", size);
  }
  return absl::OkStatus();
}

absl::Status HostMemory::Decommit(void* address, Bytes size) {
  absl::Status status = CheckGranules(address, size);
  if (!status.ok()) return status;
  if (madvise(address, size.count(), MADV_DONTNEED) != 0) {
    return ErrnoStatus("giving memory back", size);
  }
  // Taking the rights away splits a mapping, which fails when the process has as many mappings as
  // the kernel allows. The memory is gone all the same, and Commit works on what is still
  // accessible.
  if (mprotect(address, size.count(), PROT_NONE) != 0 && errno != ENOMEM) {
    return ErrnoStatus("closing memory", size);
  }
  return absl::OkStatus();
}

absl::Status HostMemory::Unreserve(void* address, Bytes size) {
  absl::Status status = CheckGranules(address, size);
  if (!status.ok()) return status;
  if (munmap(address, size.count()) != 0) return ErrnoStatus("unreserving addresses", size);
  return absl::OkStatus();
}

Bytes HostMemory::capacity() const {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return Bytes::Max();
  return Bytes(static_cast<int64_t>((info.totalram + info.totalswap) * info.mem_unit));
}

}  // namespace ebbtide
