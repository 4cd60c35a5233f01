// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/pages.h"

#include <sys/mman.h>

#include "base/check.h"

namespace ebbtide::hollow {
namespace {

constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uintptr_t Obtain(uintptr_t where, size_t bytes, int flags) {
  void* address = mmap(reinterpret_cast<void*>(where), bytes, PROT_NONE, kFlags | flags, -1, 0);
  return address == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(address);
}

}  // namespace

uintptr_t ReserveAddresses(size_t bytes, size_t alignment, uintptr_t hint) {
  if (hint != 0 && hint % alignment == 0) {
    const uintptr_t start = Obtain(hint, bytes, MAP_FIXED_NOREPLACE);
    if (start == hint) return start;
    // An old kernel does not know the flag and takes the address for a wish.
    if (start != 0) ReleaseAddresses(start, bytes);
  }
  const size_t all = bytes + alignment - kPageBytes;
  if (all < bytes) return 0;
  const uintptr_t low = Obtain(0, all, 0);
  if (low == 0) return 0;
  const uintptr_t start = (low + alignment - 1) / alignment * alignment;
  if (start > low) ReleaseAddresses(low, start - low);
  const uintptr_t end = start + bytes;
  if (end < low + all) ReleaseAddresses(end, low + all - end);
  return start;
}

bool CoverAddresses(uintptr_t start, size_t bytes) {
  return Obtain(start, bytes, MAP_FIXED) == start;
}

void ReleaseAddresses(uintptr_t start, size_t bytes) {
  EBB_CHECK(munmap(reinterpret_cast<void*>(start), bytes) == 0) << "munmap of " << bytes;
}

}  // namespace ebbtide::hollow
