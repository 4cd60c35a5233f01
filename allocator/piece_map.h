// SPDX-License-Identifier: Apache-2.0
//
// PieceMap remembers where memory lies and in which pieces it came. A driver that gave memory in
// pieces takes it back, or moves it, only in whole ones. Neighbouring pieces of one size and one
// Add are kept as one run, so that a large commit costs one entry:
//
//     address   0    2    4    6    8    10   12
//     pieces    [ 2  |  2 |  2 ]    [    4    ]
//     runs      {0, 6, piece 2}     {8, 12, piece 4}
//
// Every function is O(log runs) and linear in the runs that it touches. Thread safety: none, the
// owner locks. Owns its own entries only.

#ifndef EBBTIDE_ALLOCATOR_PIECE_MAP_H_
#define EBBTIDE_ALLOCATOR_PIECE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ebbtide {

class PieceMap {
 public:
  // Pieces of `piece` bytes, one behind the other.
  struct Run {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    size_t piece = 0;

    int64_t pieces() const { return static_cast<int64_t>((end - begin) / piece); }
  };

  // True when any byte of [begin, end) has memory.
  bool HasAny(uintptr_t begin, uintptr_t end) const;

  // True when every byte of [begin, end) has memory.
  bool HasAll(uintptr_t begin, uintptr_t end) const;

  // True when a piece lies across `border`.
  bool Cuts(uintptr_t border) const;

  // REQUIRES: nothing of the run is there yet, and its size is a positive multiple of its piece.
  void Add(const Run& run);

  // Removes what lies in [begin, end) and returns it in the order of addresses.
  // REQUIRES: neither end cuts a piece.
  std::vector<Run> Take(uintptr_t begin, uintptr_t end);

  size_t runs() const { return runs_.size(); }

 private:
  struct Rest {
    uintptr_t end;
    size_t piece;
  };
  using Map = std::map<uintptr_t, Rest>;  // from a run's begin

  Map::const_iterator FirstEndingAfter(uintptr_t address) const;
  void Split(uintptr_t border);

  Map runs_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PIECE_MAP_H_
