// SPDX-License-Identifier: Apache-2.0
//
// GranuleMap remembers which granules of one segment have memory behind them: a bit each, with
// operations on runs that work a word (64 granules) at a time.
//
// Thread safety: none, the owner locks. Ownership: it owns its bits and knows nothing of the
// memory.

#ifndef EBBTIDE_ALLOCATOR_GRANULE_MAP_H_
#define EBBTIDE_ALLOCATOR_GRANULE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebbtide {

class GranuleMap {
 public:
  // `count` granules, all committed or none.
  GranuleMap(size_t count, bool committed)
      : words_((count + 63) / 64, committed ? ~uint64_t{0} : 0) {}

  bool Get(size_t index) const { return (words_[index / 64] >> (index % 64)) & 1; }

  // Marks [begin, end).
  void Set(size_t begin, size_t end, bool committed) {
    ForEachWord(begin, end, [&](size_t word, uint64_t mask) {
      words_[word] = committed ? words_[word] | mask : words_[word] & ~mask;
    });
  }

  // How many of [begin, end) are committed.
  size_t Count(size_t begin, size_t end) const {
    size_t count = 0;
    ForEachWord(begin, end, [&](size_t word, uint64_t mask) {
      const uint64_t set = words_[word] & mask;
      // Memory comes and goes in long runs: most words are all or nothing.
      if (set == ~uint64_t{0}) {
        count += 64;
      } else if (set != 0) {
        count += __builtin_popcountll(set);
      }
    });
    return count;
  }

  // The first index in [begin, end) whose state is `committed`, or `end`.
  size_t FindNext(size_t begin, size_t end, bool committed) const {
    for (size_t at = begin; at < end; at = (at / 64 + 1) * 64) {
      const uint64_t word = committed ? words_[at / 64] : ~words_[at / 64];
      const uint64_t rest = word >> (at % 64);
      if (rest != 0) {
        const size_t found = at + __builtin_ctzll(rest);
        return found < end ? found : end;
      }
    }
    return end;
  }

  // The last index in [begin, end] that is committed. REQUIRES: there is one.
  size_t FindLast(size_t begin, size_t end) const {
    uint64_t word = words_[end / 64] << (63 - end % 64);
    if (word != 0) return end - __builtin_clzll(word);
    size_t at = end / 64;
    while (at > begin / 64 && words_[at - 1] == 0) --at;
    return at == 0 ? begin : (at - 1) * 64 + 63 - __builtin_clzll(words_[at - 1]);
  }

 private:
  template <typename Action>
  static void ForEachWord(size_t begin, size_t end, const Action& action) {
    while (begin < end) {
      const size_t word = begin / 64;
      const size_t stop = (word + 1) * 64 < end ? (word + 1) * 64 : end;
      const uint64_t ones = ~uint64_t{0} >> (64 - (stop - begin));
      action(word, ones << (begin % 64));
      begin = stop;
    }
  }

  std::vector<uint64_t> words_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_GRANULE_MAP_H_
