// SPDX-License-Identifier: Apache-2.0

#include "allocator/page_map.h"

#include <sys/mman.h>

#include "base/check.h"

namespace ebbtide {
namespace {

// Zeroed memory whose pages exist only once they are written: the tables are mostly empty.
void* MapZeroed(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EBB_CHECK(memory != MAP_FAILED) << "no addresses for " << bytes << " bytes of bookkeeping";
  return memory;
}

}  // namespace

// All-zero bytes are a valid array of null atomics, so the mapped memory needs no construction.
PageMap::PageMap()
    : root_(static_cast<std::atomic<Word*>*>(MapZeroed(kRootSize * sizeof(std::atomic<Word*>)))) {}

PageMap::~PageMap() {
  for (Word* leaf : leaves_) munmap(leaf, kLeafSize * sizeof(Word));
  munmap(root_, kRootSize * sizeof(std::atomic<Word*>));
}

void PageMap::Set(uintptr_t address, uintptr_t word) {
  const uintptr_t root_index = address >> kLeafShift;
  EBB_CHECK(root_index < kRootSize) << "address beyond 47 bits: " << address;
  Word* leaf = root_[root_index].load(std::memory_order_relaxed);
  if (leaf == nullptr) {
    leaf = static_cast<Word*>(MapZeroed(kLeafSize * sizeof(Word)));
    leaves_.push_back(leaf);
    root_[root_index].store(leaf, std::memory_order_release);
  }
  leaf[(address >> kPageBits) & (kLeafSize - 1)].store(word, std::memory_order_release);
}

}  // namespace ebbtide
