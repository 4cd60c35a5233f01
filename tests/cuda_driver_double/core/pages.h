// SPDX-License-Identifier: Apache-2.0
//
// Ranges of this process's address space with nothing behind them, which every touch of is a fault.
//
// Threads: any. Ownership: a range is the caller's until ReleaseAddresses. Sizes and addresses are
// multiples of the page.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PAGES_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace ebbtide::hollow {

inline constexpr size_t kPageBytes = 4096;

constexpr size_t PageRoundUp(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// What memory that comes with its addresses takes of them: one page behind it catches overruns.
constexpr size_t PlacedBytes(size_t bytes) { return PageRoundUp(bytes) + kPageBytes; }

// Addresses at `hint` if that is not 0, aligned and free; else where the system likes, aligned to
// `alignment`, a power of two. 0 when there are none.
uintptr_t ReserveAddresses(size_t bytes, size_t alignment, uintptr_t hint);

// Puts nothing in place of what lies at the range. False when the system refuses.
bool CoverAddresses(uintptr_t start, size_t bytes);

void ReleaseAddresses(uintptr_t start, size_t bytes);

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_PAGES_H_
