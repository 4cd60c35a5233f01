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
    : root_(static_cast<std::atomic<Leaf*>*>(MapZeroed(kRootSize * sizeof(std::atomic<Leaf*>)))) {}

PageMap::~PageMap() {
  for (Leaf* leaf : leaves_) munmap(leaf, sizeof(Leaf));
  munmap(root_, kRootSize * sizeof(std::atomic<Leaf*>));
}

PageMap::Leaf* PageMap::MakeLeaf(uintptr_t root_index) {
  std::lock_guard<std::mutex> lock(mutex_);
  Leaf* leaf = root_[root_index].load(std::memory_order_relaxed);
  if (leaf != nullptr) return leaf;
  leaf = static_cast<Leaf*>(MapZeroed(sizeof(Leaf)));
  leaves_.push_back(leaf);
  root_[root_index].store(leaf, std::memory_order_release);
  return leaf;
}

void PageMap::Set(uintptr_t address, uintptr_t word) {
  const uintptr_t root_index = address >> kLeafShift;
  EBB_CHECK(root_index < kRootSize) << "address beyond 47 bits: " << address;
  Leaf* leaf = root_[root_index].load(std::memory_order_acquire);
  if (leaf == nullptr) leaf = MakeLeaf(root_index);
  const uintptr_t index = (address >> kPageBits) & (kLeafSize - 1);
  leaf->words[index].store(word, std::memory_order_release);
  const uint64_t bit = uint64_t{1} << (index % 64);
  if (word == 0) {
    leaf->used[index / 64].fetch_and(~bit, std::memory_order_relaxed);
    return;
  }
  leaf->used[index / 64].fetch_or(bit, std::memory_order_release);
  std::atomic<uint64_t>& touched = leaf->touched[index / 64 / 64];
  const uint64_t touched_bit = uint64_t{1} << (index / 64 % 64);
  // Set once for all, so that two threads need not agree on when it ends.
  if ((touched.load(std::memory_order_relaxed) & touched_bit) == 0) touched.fetch_or(touched_bit);
}

// The last word that is not 0 at or before index `last`.
uintptr_t PageMap::FindInLeaf(const Leaf& leaf, uintptr_t last) {
  const auto up_to = [](uint64_t bits, uintptr_t bit) { return bits << (63 - bit) >> (63 - bit); };
  uint64_t used = up_to(leaf.used[last / 64].load(std::memory_order_acquire), last % 64);
  uintptr_t group = last / 64;
  while (used == 0) {
    if (group == 0) return 0;
    --group;
    uint64_t touched = up_to(leaf.touched[group / 64].load(), group % 64);
    while (touched == 0) {
      if (group < 64) return 0;
      group = (group / 64 - 1) * 64 + 63;
      touched = leaf.touched[group / 64].load();
    }
    group = group / 64 * 64 + 63 - __builtin_clzll(touched);
    used = leaf.used[group].load(std::memory_order_acquire);
  }
  const uintptr_t index = group * 64 + 63 - __builtin_clzll(used);
  return leaf.words[index].load(std::memory_order_acquire);
}

uintptr_t PageMap::FindAtOrBefore(uintptr_t address, uintptr_t reach) const {
  const uintptr_t root_index = address >> kLeafShift;
  if (root_index >= kRootSize) return 0;
  const uintptr_t lowest = (address < reach ? 0 : address - reach) >> kLeafShift;
  uintptr_t last = (address >> kPageBits) & (kLeafSize - 1);
  for (uintptr_t i = root_index + 1; i-- > lowest; last = kLeafSize - 1) {
    const Leaf* leaf = root_[i].load(std::memory_order_acquire);
    const uintptr_t word = leaf == nullptr ? 0 : FindInLeaf(*leaf, last);
    if (word != 0) return word;
  }
  return 0;
}

}  // namespace ebbtide
