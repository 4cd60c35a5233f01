// SPDX-License-Identifier: Apache-2.0
//
// PageMap finds what the allocator knows of an address: a two-level table with one word for each
// 4 KiB page of the 47-bit address space, present only where something was set. A word of 0 means
// "nothing known".
//
// Beside the words each table keeps a bit for every page that has one, so that the page before an
// address is found by looking at a few words, however far away it is.
//
// Thread safety: all functions may run at any time; two calls of Set for the same page exclude each
// other by the owner's lock. A Get that follows a Set in the order of the program (or through
// whatever handed the pointer to the other thread) sees it, and sees what was written before it.
// Ownership: the tables belong to the map and go with it; the words are not interpreted.

#ifndef EBBTIDE_ALLOCATOR_PAGE_MAP_H_
#define EBBTIDE_ALLOCATOR_PAGE_MAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ebbtide {

class PageMap {
 public:
  static constexpr int kPageBits = 12;

  PageMap();
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // The word of the page that holds `address`; 0 for any address that nothing was set for.
  uintptr_t Get(uintptr_t address) const {
    const uintptr_t root_index = address >> kLeafShift;
    if (root_index >= kRootSize) return 0;
    const Leaf* leaf = root_[root_index].load(std::memory_order_acquire);
    if (leaf == nullptr) return 0;
    return leaf->words[(address >> kPageBits) & (kLeafSize - 1)].load(std::memory_order_acquire);
  }

  // The word of the last page at or before the one that holds `address`, among those with a word
  // that is not 0; 0 if there is none within `reach` bytes. Costs one step for each GiB of reach.
  uintptr_t FindAtOrBefore(uintptr_t address, uintptr_t reach) const;

  // Sets the word of the page that holds `address`. REQUIRES: address < 2^47. Aborts when the
  // process cannot get 2 MiB of addresses for a new table.
  void Set(uintptr_t address, uintptr_t word);

 private:
  using Word = std::atomic<uintptr_t>;
  static constexpr int kAddressBits = 47;
  static constexpr int kLeafShift = 30;
  static constexpr uintptr_t kRootSize = uintptr_t{1} << (kAddressBits - kLeafShift);
  static constexpr uintptr_t kLeafSize = uintptr_t{1} << (kLeafShift - kPageBits);

  static constexpr uintptr_t kMapWords = kLeafSize / 64;

  struct Leaf {
    Word words[kLeafSize];
    std::atomic<uint64_t> used[kMapWords];          // a bit for each word that is not 0
    std::atomic<uint64_t> touched[kMapWords / 64];  // a bit for each of `used` that ever was not 0
  };

  Leaf* MakeLeaf(uintptr_t root_index);
  static uintptr_t FindInLeaf(const Leaf& leaf, uintptr_t last);

  std::atomic<Leaf*>* root_;
  std::mutex mutex_;           // for making leaves
  std::vector<Leaf*> leaves_;  // those that root_ names, so that the destructor need not look
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PAGE_MAP_H_
