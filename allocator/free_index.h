// SPDX-License-Identifier: Apache-2.0
//
// FreeIndex finds the free block that fits best, in O(log n) whatever the sizes are and in
// constant time for the sizes that training has. Sizes fall into bins: one for each multiple of 64
// bytes below 2 KiB, then 32 for each doubling, so that a bin spans 1/32 of its size; a bitmap with
// a summary above it says which bins hold something. Inside a bin the distinct sizes, mostly one or
// two, form a treap (Aragon and Seidel, "Randomized Search Trees", FOCS 1989) whose priorities are
// hashes of the sizes, and objects of one size a list.
//
// The links lie in the indexed objects: T has, for each index that it can be in, a member of type
// FreeLink<T>, and the index is told which. Thread safety: none, the owner locks. Ownership: none;
// an object must be removed before it goes. To replace: the tests compare with a sorted set.

#ifndef EBBTIDE_ALLOCATOR_FREE_INDEX_H_
#define EBBTIDE_ALLOCATOR_FREE_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ebbtide {

template <typename T>
struct FreeLink {
  size_t key = 0;     // 0: not in the index
  T* prev = nullptr;  // objects of the same key; the first of them stands in the tree
  T* next = nullptr;
  // Of the first of its key only.
  T* parent = nullptr;
  T* less = nullptr;
  T* greater = nullptr;
};

template <typename T, FreeLink<T> T::*kLink>
class FreeIndex {
 public:
  static constexpr size_t kUnit = 64;  // keys are compared exactly, but binned in these

  // Files `object` under `key`. A key of 0 keeps it out of the index. REQUIRES: it is not in it.
  void Insert(T* object, size_t key) {
    if (key == 0) return;
    FreeLink<T>& link = object->*kLink;
    link = {.key = key};
    const size_t bin = BinOf(key);
    T** place = &roots_[bin];
    // An equal key has an equal priority: it cannot lie below a smaller one.
    while (*place != nullptr && !Above(key, Link(*place).key)) {
      FreeLink<T>& at = Link(*place);
      if (at.key == key) return InsertAfter(*place, object);
      link.parent = *place;
      place = key < at.key ? &at.less : &at.greater;
    }
    Split(*place, object);
    *place = object;
    words_[bin / 64] |= uint64_t{1} << (bin % 64);
    summary_ |= uint64_t{1} << (bin / 64);
  }

  // Takes `object` out; nothing happens when it is not in the index.
  void Remove(T* object) {
    FreeLink<T>& link = object->*kLink;
    if (link.key == 0) return;
    if (link.prev != nullptr) {
      Link(link.prev).next = link.next;
      if (link.next != nullptr) Link(link.next).prev = link.prev;
    } else {
      const size_t bin = BinOf(link.key);
      T* heir = link.next;
      if (heir != nullptr) {
        TakeOver(heir, link);
      } else {
        heir = Merge(link.less, link.greater, link.parent);
      }
      PlaceOf(object, bin) = heir;
      if (roots_[bin] == nullptr) ClearBin(bin);
    }
    link.key = 0;
  }

  // The object with the smallest key >= `wanted`, of several the one that came last or, if it came
  // first, the one before it; nullptr when there is none.
  T* Find(size_t wanted) const {
    const size_t bin = BinOf(wanted);
    T* best = nullptr;
    for (T* at = roots_[bin]; at != nullptr;) {
      const FreeLink<T>& link = Link(at);
      if (link.key >= wanted) best = at;
      if (link.key == wanted) break;
      at = link.key > wanted ? link.less : link.greater;
    }
    if (best == nullptr) {
      const size_t above = NextBin(bin + 1);
      if (above == kBins) return nullptr;
      best = roots_[above];
      while (Link(best).less != nullptr) best = Link(best).less;
    }
    return Latest(best);
  }

  // An object with the largest key, or nullptr when empty.
  T* Largest() const {
    if (summary_ == 0) return nullptr;
    T* largest = roots_[LastBin()];
    while (Link(largest).greater != nullptr) largest = Link(largest).greater;
    return Latest(largest);
  }

  // The largest key; 0 when empty.
  size_t LargestKey() const {
    const T* largest = Largest();
    return largest == nullptr ? 0 : (largest->*kLink).key;
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

  static FreeLink<T>& Link(T* object) { return object->*kLink; }

  // Whether `key` stands above `other` in the tree: multiplicative hashing, a bijection.
  static bool Above(size_t key, size_t other) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    return key * kFactor > other * kFactor;
  }

  // Where the tree points to `object`, the first of its key.
  T*& PlaceOf(T* object, size_t bin) {
    T* parent = Link(object).parent;
    if (parent == nullptr) return roots_[bin];
    return Link(parent).less == object ? Link(parent).less : Link(parent).greater;
  }

  static T* Latest(T* first) { return Link(first).next != nullptr ? Link(first).next : first; }

  static void InsertAfter(T* first, T* object) {
    FreeLink<T>& link = Link(object);
    link.parent = nullptr;
    link.prev = first;
    link.next = Link(first).next;
    if (link.next != nullptr) Link(link.next).prev = object;
    Link(first).next = object;
  }

  // `heir` stands where the object of `link` stood, the first of the same key.
  static void TakeOver(T* heir, const FreeLink<T>& link) {
    FreeLink<T>& mine = Link(heir);
    mine.prev = nullptr;
    mine.parent = link.parent;
    mine.less = link.less;
    mine.greater = link.greater;
    if (mine.less != nullptr) Link(mine.less).parent = heir;
    if (mine.greater != nullptr) Link(mine.greater).parent = heir;
  }

  // Divides the tree `from` by the key of `object` into the two trees below it.
  static void Split(T* from, T* object) {
    const size_t key = Link(object).key;
    T** less = &Link(object).less;
    T** greater = &Link(object).greater;
    T* less_parent = object;
    T* greater_parent = object;
    while (from != nullptr) {
      FreeLink<T>& at = Link(from);
      if (at.key < key) {
        *less = from;
        at.parent = less_parent;
        less_parent = from;
        less = &at.greater;
        from = at.greater;
      } else {
        *greater = from;
        at.parent = greater_parent;
        greater_parent = from;
        greater = &at.less;
        from = at.less;
      }
    }
    *less = nullptr;
    *greater = nullptr;
  }

  // One tree of two, every key of `less` below every key of `greater`, under `parent`.
  static T* Merge(T* less, T* greater, T* parent) {
    T* root = nullptr;
    T** place = &root;
    while (less != nullptr && greater != nullptr) {
      T* top = Above(Link(less).key, Link(greater).key) ? less : greater;
      *place = top;
      Link(top).parent = parent;
      parent = top;
      if (top == less) {
        place = &Link(top).greater;
        less = *place;
      } else {
        place = &Link(top).less;
        greater = *place;
      }
    }
    *place = less != nullptr ? less : greater;
    if (*place != nullptr) Link(*place).parent = parent;
    return root;
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

  std::array<T*, kBins> roots_{};
  std::array<uint64_t, kWords> words_{};
  uint64_t summary_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_FREE_INDEX_H_
