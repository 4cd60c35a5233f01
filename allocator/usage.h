// SPDX-License-Identifier: Apache-2.0
//
// How much of something there is, was at most, and came and went: the numbers that the allocator
// keeps for each kind of memory and each pool. Plain values; the allocator makes them at one
// moment.
//
// There are two kinds, as in PyTorch's statistics and in a snapshot's segments: memory in segments
// for small requests (below 256 KiB), and memory in segments for large ones. A block belongs to the
// kind of the segment that it lies in; now and then a small one is put into a hole among large
// ones.

#ifndef EBBTIDE_ALLOCATOR_USAGE_H_
#define EBBTIDE_ALLOCATOR_USAGE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace ebbtide {

// allocated - freed = current <= peak.
struct Level {
  Bytes current;
  Bytes peak;       // since the start or the latest ResetPeaks
  Bytes allocated;  // all that ever came
  Bytes freed;      // all that ever went

  Level& operator+=(const Level& other);
  Level& operator-=(const Level& other);  // leaves the peak alone
  friend bool operator==(const Level&, const Level&) = default;
};

// held = live + awaiting + cached, in each column but the peaks.
//
// Peaks are exact as long as one stream and one pool are used, but for blocks of the small caches,
// of which up to 64 KiB a thread may be missed. With several the peaks of each are added up, which
// is never less than what there was at one moment, and may be more.
struct Usage {
  Level live;      // in blocks handed out, each as SizeOf says
  Level asked;     // the same blocks with the sizes that were asked for
  Level awaiting;  // in freed blocks that are not yet for anybody
  Level cached;    // free and committed; what comes was committed or freed, what goes was reused or
                   // given back
  Level held;      // committed at the device; what comes was obtained or moved here
  int64_t allocations = 0;
  int64_t frees = 0;

  int64_t live_blocks() const { return allocations - frees; }
  Usage& operator+=(const Usage& other);
  Usage& operator-=(const Usage& other);  // leaves the peaks alone
};

// One line for people: "live 12.00 MiB (peak 40.00 MiB, 100.00 MiB came), asked ...".
std::string FormatUsage(const Usage& usage);

struct PoolUsage {
  uint64_t pool = 0;
  Usage usage;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_USAGE_H_
