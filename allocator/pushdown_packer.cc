// SPDX-License-Identifier: Apache-2.0
#include "allocator/pushdown_packer.h"

#include <algorithm>
#include <list>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace ebbtide {
namespace {

constexpr int kGap = -1;

// The buffers that live at one instant, and the gaps between them, from low to high.
class Stack {
 public:
  // `bytes` of each buffer, rounded up.
  explicit Stack(const std::vector<int64_t>& bytes)
      : bytes_(bytes), at_(bytes.size()), above_(bytes.size()) {}

  void Begin(int buffer) {
    const int64_t bytes = bytes_[buffer];
    auto gap = gaps_.lower_bound(bytes);
    if (gap == gaps_.end() && !gaps_.empty()) gap = std::prev(gap);
    Chunks::iterator chunk = chunks_.end();
    if (gap != gaps_.end()) {
      chunk = gap->second;
      const int64_t rest = gap->first - bytes;
      gaps_.erase(gap);
      if (rest > 0) AddGap(std::next(chunk), rest);
      *chunk = {buffer, {}};
    } else {
      chunk = chunks_.insert(chunks_.end(), {buffer, {}});
    }
    at_[buffer] = chunk;
    const int below = Neighbour(chunk, -1), above = Neighbour(chunk, 1);
    if (below != kGap) above_[below].push_back(buffer);
    if (above != kGap) above_[buffer].push_back(above);
  }

  void End(int buffer) {
    const Chunks::iterator chunk = at_[buffer];
    int64_t bytes = bytes_[buffer];
    Chunks::iterator next = chunks_.erase(chunk);
    if (next != chunks_.end() && next->buffer == kGap) {
      bytes += next->gap->first;
      gaps_.erase(next->gap);
      next = chunks_.erase(next);
    }
    if (next != chunks_.begin() && std::prev(next)->buffer == kGap) {
      bytes += std::prev(next)->gap->first;
      gaps_.erase(std::prev(next)->gap);
      chunks_.erase(std::prev(next));
    }
    AddGap(next, bytes);
  }

  // Each buffer onto the highest of those it lies above. Whoever lives at once is ordered by a
  // chain of these: a buffer that goes takes none away, one that comes is put between its two.
  std::vector<int64_t> PushDown() const {
    std::vector<int64_t> offsets(bytes_.size());
    std::vector<int> waits(bytes_.size()), ready;
    for (const std::vector<int>& above : above_) {
      for (int buffer : above) ++waits[buffer];
    }
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i] == 0) ready.push_back(static_cast<int>(i));
    }
    while (!ready.empty()) {
      const int buffer = ready.back();
      ready.pop_back();
      for (int above : above_[buffer]) {
        offsets[above] = std::max(offsets[above], offsets[buffer] + bytes_[buffer]);
        if (--waits[above] == 0) ready.push_back(above);
      }
    }
    return offsets;
  }

 private:
  struct Chunk;
  using Chunks = std::list<Chunk>;
  using Gaps = std::multimap<int64_t, Chunks::iterator>;
  struct Chunk {
    int buffer;          // or kGap
    Gaps::iterator gap;  // of a gap
  };

  void AddGap(Chunks::iterator before, int64_t bytes) {
    const Chunks::iterator chunk = chunks_.insert(before, {kGap, {}});
    chunk->gap = gaps_.emplace(bytes, chunk);
  }

  // The next buffer in this direction: gaps never touch, so at most one lies between.
  int Neighbour(Chunks::iterator chunk, int direction) {
    for (;;) {
      if (chunk == (direction < 0 ? chunks_.begin() : std::prev(chunks_.end()))) return kGap;
      chunk = direction < 0 ? std::prev(chunk) : std::next(chunk);
      if (chunk->buffer != kGap) return chunk->buffer;
    }
  }

  const std::vector<int64_t>& bytes_;
  Chunks chunks_;
  Gaps gaps_;
  std::vector<Chunks::iterator> at_;     // of each buffer that lives
  std::vector<std::vector<int>> above_;  // of each buffer: those that lay right above it at first
};

}  // namespace

Packing PackByPushdown(absl::Span<const Lifetime> lifetimes, int64_t alignment) {
  EBB_CHECK(alignment > 0) << alignment;
  std::vector<int64_t> bytes(lifetimes.size());
  // (time, whether it begins, longest first, buffer)
  std::vector<std::tuple<int64_t, bool, int64_t, int>> events;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& each = lifetimes[i];
    EBB_CHECK(each.bytes >= 0 && each.fixed < 0) << "lifetime " << i;
    bytes[i] = (each.bytes + alignment - 1) / alignment * alignment;
    if (each.bytes == 0 || each.begin >= each.end) continue;
    events.emplace_back(each.begin, true, -each.end, static_cast<int>(i));
    events.emplace_back(each.end, false, 0, static_cast<int>(i));
  }
  std::sort(events.begin(), events.end());
  Stack stack(bytes);
  for (const auto& [time, begins, last, buffer] : events) {
    if (begins) {
      stack.Begin(buffer);
    } else {
      stack.End(buffer);
    }
  }
  Packing packing;
  packing.offsets = stack.PushDown();
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    packing.height = std::max(packing.height, packing.offsets[i] + lifetimes[i].bytes);
  }
  return packing;
}

}  // namespace ebbtide
