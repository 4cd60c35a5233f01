// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/pattern_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

// How many calls before `end` equal those that end at `phase`, up to `limit`.
int64_t Agreement(const PeriodFinder& recent, int64_t end, const StoredPattern& pattern,
                  int64_t phase, int64_t limit) {
  const int64_t seen = std::min({end, recent.history() - (recent.count() - end), limit});
  int64_t agreed = 0;
  while (agreed < seen &&
         static_cast<uint64_t>(recent.at(end - 1 - agreed)) == pattern.signatures[phase]) {
    ++agreed;
    phase = phase == 0 ? pattern.period() - 1 : phase - 1;
  }
  return agreed;
}

}  // namespace

int64_t StoredPattern::Phase(int64_t phase, int64_t calls) const {
  const int64_t moved = (phase + calls) % period();
  return moved < 0 ? moved + period() : moved;
}

int64_t StoredPattern::NanosAfter(int64_t phase, int64_t calls) const {
  const int64_t end = phase + calls;
  return end / period() * nanos[period()] + nanos[end % period()] - nanos[phase];
}

const UseRecord* StoredPattern::Record(int64_t phase, uint32_t place) const {
  const uint32_t index = first_record[phase] + place;
  return index < first_record[phase + 1] ? &records[index] : nullptr;
}

int64_t StoredPattern::memory_bytes() const {
  // In the index: a window's hash and its one spot, 33 bytes with the table's own, in a table that
  // is rarely less than half full.
  constexpr int64_t kIndexBytes = 72;
  return period() * (sizeof(uint64_t) + sizeof(int64_t) + sizeof(uint32_t) + kIndexBytes) +
         static_cast<int64_t>(records.size() * sizeof(UseRecord) + sizeof(*this));
}

uint64_t PatternStore::WindowBefore(const StoredPattern& pattern, int64_t phase) {
  return PeriodFinder::WindowHash([&](int64_t i) {
    const int64_t back = PeriodFinder::kWindow - 1 - i;
    return static_cast<int64_t>(pattern.signatures[pattern.Phase(phase, -back)]);
  });
}

PatternStore::Place PatternStore::Find(const PeriodFinder& recent) const {
  Place best;
  const auto found = spots_.find(recent.window_hash());
  if (found == spots_.end()) return best;
  for (const Spot& spot : found->second) {
    const int64_t agreed =
        Agreement(recent, recent.count(), *spot.pattern, spot.phase, kAgreementMax);
    if (agreed < PeriodFinder::kWindow || agreed < best.matched) continue;
    // Of equals, the one followed last: what went on most recently is likeliest to go on.
    if (agreed == best.matched && spot.pattern->last_followed <= best.pattern->last_followed) {
      continue;
    }
    best = {spot.pattern, spot.phase, agreed};
  }
  return best;
}

PatternStore::Place PatternStore::FindCall(uint64_t signature) const {
  Place best;
  for (const auto& pattern : patterns_) {
    if (best.pattern != nullptr && pattern->last_followed <= best.pattern->last_followed) continue;
    const auto& calls = pattern->signatures;
    const auto found = std::find(calls.begin(), calls.end(), signature);
    if (found != calls.end()) best = {pattern.get(), found - calls.begin(), 1};
  }
  return best;
}

PatternStore::Place PatternStore::FindTurn(const PeriodFinder& recent, int64_t end,
                                           int64_t period) const {
  const uint64_t window = PeriodFinder::WindowHash(
      [&](int64_t i) { return recent.at(end - PeriodFinder::kWindow + i); });
  const auto found = spots_.find(window);
  if (found == spots_.end()) return {};
  for (const Spot& spot : found->second) {
    if (spot.pattern->period() != period) continue;
    if (Agreement(recent, end, *spot.pattern, spot.phase, period) == period) {
      return {spot.pattern, spot.phase, period};
    }
  }
  return {};
}

void PatternStore::Insert(StoredPattern pattern) {
  const int64_t bytes = pattern.memory_bytes();
  if (bytes > memory_max_.count()) return;
  while (memory_bytes_ + bytes > memory_max_.count()) {
    const auto oldest = std::min_element(
        patterns_.begin(), patterns_.end(),
        [](const auto& a, const auto& b) { return a->last_followed < b->last_followed; });
    Forget(oldest - patterns_.begin());
  }
  memory_bytes_ += bytes;
  patterns_.push_back(std::make_unique<StoredPattern>(std::move(pattern)));
  StoredPattern* const stored = patterns_.back().get();
  for (int64_t phase = 0; phase < stored->period(); ++phase) {
    Spots& spots = spots_[WindowBefore(*stored, phase)];
    if (spots.size() < kPlacesMax) spots.push_back({stored, phase});
  }
}

void PatternStore::Refresh(StoredPattern* stored, StoredPattern fresh) {
  EBB_DCHECK(stored->signatures == fresh.signatures);
  memory_bytes_ += fresh.memory_bytes() - stored->memory_bytes();
  *stored = std::move(fresh);
}

void PatternStore::Forget(size_t index) {
  StoredPattern* const pattern = patterns_[index].get();
  for (int64_t phase = 0; phase < pattern->period(); ++phase) {
    const auto found = spots_.find(WindowBefore(*pattern, phase));
    if (found == spots_.end()) continue;
    Spots& spots = found->second;
    spots.erase(std::remove_if(spots.begin(), spots.end(),
                               [&](const Spot& spot) { return spot.pattern == pattern; }),
                spots.end());
    if (spots.empty()) spots_.erase(found);
  }
  memory_bytes_ -= pattern->memory_bytes();
  patterns_.erase(patterns_.begin() + static_cast<ptrdiff_t>(index));
}

}  // namespace ebbtide
