// SPDX-License-Identifier: Apache-2.0
//
// Who touched which addresses last, and whether something orders what touches them next behind it.
// Work on two streams is ordered only by an event that one waits for, by the legacy stream, or by a
// host that has waited for the one before it queued the other. Two touches of which one writes, and
// that nothing orders, are a race: on a device they may come in either order, however they came
// here.
//
// The order is kept as vector clocks: a clock says for each stream how many of its operations come
// before a point (C. Fidge, 1988; F. Mattern, 1989). All threads of the host count as one, so that
// a missing order between threads is not seen, and none is ever reported that is there.
//
// Threads: the caller serialises all calls. Owns its records, and grows with the number of
// different ranges until they are forgotten.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ACCESS_HISTORY_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ACCESS_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ebbtide::hollow {

// By stream id, how many of its operations come before.
using Clock = std::map<uint64_t, uint64_t>;

// Makes `clock` know what `other` knows.
void Merge(const Clock& other, Clock* clock);

// A range of addresses that an operation reads or writes.
struct Touch {
  uintptr_t start = 0;
  size_t bytes = 0;
  bool writes = false;
};

// One operation: the `number`th of its stream.
struct Toucher {
  uint64_t stream = 0;
  uint64_t number = 0;
  const char* name = "";
};

class AccessHistory {
 public:
  // Notes a touch by an operation that comes after what `clock` says. Returns an earlier toucher
  // with which it is in a race, if there is one.
  std::optional<Toucher> Note(const Touch& touch, const Toucher& toucher, const Clock& clock);

  // A toucher of the range that is not among what `clock` says, if there is one.
  std::optional<Toucher> FindUnordered(uintptr_t start, size_t bytes, const Clock& clock) const;

  // Whoever gets these addresses next starts anew.
  void Forget(uintptr_t start, size_t bytes);

 private:
  struct Cell {
    uintptr_t end = 0;
    std::optional<Toucher> writer;  // the latest
    std::vector<Toucher> readers;   // since then, the latest of each stream
  };
  using Cells = std::map<uintptr_t, Cell>;

  // Makes the cells begin and end at the range's ends, and returns those inside: [first, last).
  std::pair<Cells::iterator, Cells::iterator> Split(uintptr_t start, uintptr_t end);

  Cells cells_;  // by start, without overlap
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_ACCESS_HISTORY_H_
