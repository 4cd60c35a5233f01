// SPDX-License-Identifier: Apache-2.0
//
// FreeIndex finds a free block by size in constant time. Sizes fall into bins: one for each
// multiple of 64 bytes below 2 KiB, then 32 for each doubling, so that a bin spans 1/32 of its
// size; a bitmap with a summary above it says which bins hold something. A search looks at a few
// blocks of the bin that the wanted size falls into (exact repeats, the usual case in training, are
// found there), then takes from the next bin that is not empty, where everything fits.
//
// The links lie in the indexed objects: T has, for each index that it can be in, a member of type
// FreeLink<T>, and the index is told which. Thread safety: none, the owner locks. Ownership: none;
// an object must be removed before it goes.

#ifndef EBBTIDE_ALLOCATOR_FREE_INDEX_H_
#define EBBTIDE_ALLOCATOR_FREE_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ebbtide {

template <typename T>
struct FreeLink {
  T* prev = nullptr;
  T* next = nullptr;
  size_t key = 0;  // 0: not in the index
};

template <typename T, FreeLink<T> T::*kLink>
class FreeIndex {
 public:
  static constexpr size_t kUnit = 64;         // keys are compared exactly, but binned in these
  static constexpr size_t kSearchDepth = 16;  // blocks looked at in one bin

  // Files `object` under `key`. A key of 0 keeps it out of the index. REQUIRES: it is not in it.
  void Insert(T* object, size_t key) {
    if (key == 0) return;
    FreeLink<T>& link = object->*kLink;
    const size_t bin = BinOf(key);
    link.key = key;
    link.prev = nullptr;
    link.next = heads_[bin];
    if (link.next != nullptr) (link.next->*kLink).prev = object;
    heads_[bin] = object;
    words_[bin / 64] |= uint64_t{1} << (bin % 64);
    summary_ |= uint64_t{1} << (bin / 64);
  }

  // Takes `object` out; nothing happens when it is not in the index.
  void Remove(T* object) {
    FreeLink<T>& link = object->*kLink;
    if (link.key == 0) return;
    const size_t bin = BinOf(link.key);
    if (link.next != nullptr) (link.next->*kLink).prev = link.prev;
    if (link.prev != nullptr) {
      (link.prev->*kLink).next = link.next;
    } else {
      heads_[bin] = link.next;
      if (link.next == nullptr) ClearBin(bin);
    }
    link.key = 0;
  }

  // An object with key >= `wanted`, or nullptr when there is none at all. Among the objects that it
  // looks at it takes the one with the smallest key; only when the bins above are empty it looks at
  // every object of the bin of `wanted`.
  T* Find(size_t wanted) const {
    const size_t bin = BinOf(wanted);
    T* best = SmallestFit(heads_[bin], wanted, kSearchDepth);
    if (best != nullptr) return best;
    const size_t above = NextBin(bin + 1);
    if (above == kBins) return SmallestFit(heads_[bin], wanted, SIZE_MAX);
    return SmallestFit(heads_[above], wanted, kSearchDepth);
  }

  // An object with one of the largest keys (within 1/32 of the largest), or nullptr when empty.
  T* AlmostLargest() const { return summary_ == 0 ? nullptr : heads_[LastBin()]; }

  // The largest key, exactly; 0 when empty. Looks at all objects of the last bin: for reports.
  size_t LargestKey() const {
    size_t largest = 0;
    for (const T* o = AlmostLargest(); o != nullptr; o = (o->*kLink).next) {
      if ((o->*kLink).key > largest) largest = (o->*kLink).key;
    }
    return largest;
  }

 private:
  static constexpr size_t kBins = 32 + 32 * 37;  // up to 2^48 bytes
  static constexpr size_t kWords = (kBins + 63) / 64;
  static_assert(kWords <= 64, "one summary word must be enough");

  static size_t BinOf(size_t key) {
    const size_t units = key / kUnit;
    if (units < 32) return units;
    const int exponent = 63 - __builtin_clzll(units);
    const size_t bin = 32 + (exponent - 5) * 32 + ((units >> (exponent - 5)) & 31);
    return bin < kBins ? bin : kBins - 1;
  }

  void ClearBin(size_t bin) {
    words_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    if (words_[bin / 64] == 0) summary_ &= ~(uint64_t{1} << (bin / 64));
  }

  size_t LastBin() const {
    const int word = 63 - __builtin_clzll(summary_);
    return word * 64 + 63 - __builtin_clzll(words_[word]);
  }

  // The first bin from `bin` on that is not empty, or kBins.
  size_t NextBin(size_t bin) const {
    if (bin >= kBins) return kBins;
    const size_t word = bin / 64;
    const uint64_t here = words_[word] >> (bin % 64) << (bin % 64);
    if (here != 0) return word * 64 + __builtin_ctzll(here);
    const uint64_t above = word == 63 ? 0 : summary_ >> (word + 1) << (word + 1);
    if (above == 0) return kBins;
    const int next = __builtin_ctzll(above);
    return next * 64 + __builtin_ctzll(words_[next]);
  }

  // Of the first `depth` objects of the list at `head`, the one with the smallest key >= `wanted`.
  static T* SmallestFit(T* head, size_t wanted, size_t depth) {
    T* best = nullptr;
    for (T* o = head; o != nullptr && depth > 0; o = (o->*kLink).next, --depth) {
      const size_t key = (o->*kLink).key;
      if (key == wanted) return o;
      if (key > wanted && (best == nullptr || key < (best->*kLink).key)) best = o;
    }
    return best;
  }

  std::array<T*, kBins> heads_{};
  std::array<uint64_t, kWords> words_{};
  uint64_t summary_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_FREE_INDEX_H_
