// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

constexpr int64_t kAccessesPerCall = 4;  // on average: room in the ring
constexpr int64_t kMemoryMin = 64 << 10;
constexpr int64_t kSmoothing = 4;  // a new time has a weight of 1/4
// More than so many times the other, and this much above it, one of two steps holds a pause.
constexpr int64_t kPauseFactor = 2;
constexpr int64_t kPauseNanos = 1000;

// Of one call in the ring: what PeriodFinder, calls_ and records_ hold of it.
constexpr int64_t kBytesPerCall = 4 * sizeof(int64_t) + 2 * sizeof(int64_t) +
                                  kAccessesPerCall * static_cast<int64_t>(sizeof(UseRecord));

// The longest period whose ring, of two turns, fits into half of the memory: a power of two.
int64_t PeriodMax(Bytes memory) {
  const int64_t bytes = std::max(memory.count(), kMemoryMin);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes / 4 / kBytesPerCall)));
}

// A mark takes its place in the sequence like a call, under a signature that no call has.
uint64_t MarkSignature(uint64_t label) {
  return (label + 0x6d61726b) * 0x9e3779b97f4a7c15 ^ 0xd1b54a32d192ed03;
}

}  // namespace

AccessPattern::AccessPattern(const PatternOptions& options)
    : finder_(PeriodMax(options.memory_max)),
      mask_(finder_.history() - 1),
      calls_(finder_.history()),
      records_mask_(kAccessesPerCall * finder_.history() - 1),
      records_(records_mask_ + 1),
      store_(Bytes(std::max(options.memory_max.count(), kMemoryMin) -
                   finder_.history() * kBytesPerCall)) {
  EBB_CHECK(options.memory_max.count() > 0) << options.memory_max.count();
}

int64_t AccessPattern::memory_bytes() const {
  return finder_.history() * kBytesPerCall + store_.memory_bytes();
}

// True if the place in the store has come to its end.
bool AccessPattern::AdvanceStored(uint64_t signature) {
  if (stored_.pattern == nullptr) return false;
  stored_.phase = stored_.phase + 1 == stored_.pattern->period() ? 0 : stored_.phase + 1;
  ++stored_.matched;
  if (stored_.pattern->signatures[stored_.phase] == signature) return false;
  stored_ = {};
  return true;
}

void AccessPattern::ChooseGuide() {
  const int64_t in_ring = finder_.followed() > 0 ? finder_.matched() : 0;
  if (stored_.pattern != nullptr && stored_.matched > in_ring) {
    guide_ = {stored_.pattern, stored_.phase, stored_.pattern->period(), stored_.matched};
  } else {
    guide_ = {nullptr, 0, in_ring > 0 ? finder_.followed() : 0, in_ring};
  }
}

void AccessPattern::Advance(uint64_t signature) {
  const bool by_store = guide_.pattern != nullptr;
  const int64_t followed = finder_.followed();
  const int64_t held = finder_.period();
  finder_.Add(static_cast<int64_t>(signature));
  // The value that breaks a period never agrees with the same distance again.
  const bool ring_ended = followed > 0 && finder_.followed() != followed;
  const bool store_ended = AdvanceStored(signature);
  if (guide_.matched > 0 && (by_store ? store_ended : ring_ended)) ++stats_.departures;
  if (ring_ended && held >= kStoredPeriodMin) KeepTurn(last(), held);
  // A period that holds in the ring needs no second guide. One that does not may be young, and the
  // store may know for longer how things go on.
  if (finder_.period() > 0) {
    stored_ = {};
  } else if (stored_.pattern == nullptr && (ring_ended || finder_.followed() == 0)) {
    stored_ = store_.Find(finder_);
    if (stored_.pattern != nullptr) stored_.pattern->last_followed = last();
  }
  ChooseGuide();
}

// The clock of the ring: each step is what it was in the guide, moved towards what it is now.
void AccessPattern::Tick(Nanos elapsed) {
  int64_t step = elapsed.count();
  const int64_t call = last();
  if (guide_.matched > 1) {
    int64_t usual;
    if (guide_.pattern != nullptr) {
      usual = guide_.pattern->NanosAfter(guide_.pattern->Phase(guide_.phase, -1), 1);
    } else {
      const int64_t then = call - guide_.period;
      usual = ring(then).nanos - ring(then - 1).nanos;
    }
    const int64_t now = std::min(step, kPauseFactor * usual + kPauseNanos);
    usual = std::min(usual, kPauseFactor * step + kPauseNanos);
    step = usual + (now - usual) / kSmoothing;
  }
  ring(call).nanos = (call > 0 ? ring(call - 1).nanos : 0) + step;
}

void AccessPattern::OnCall(uint64_t signature, absl::Span<const Access> accesses, Nanos now) {
  Advance(signature);
  ++stats_.calls;
  if (!guided()) ++stats_.unguided;
  Tick(stats_.calls > 1 ? now - now_ : Nanos(0));
  now_ = now;
  uint32_t place = 0;
  for (const Access& access : accesses) {
    UseTrack& value = *access.value;
    if (access.touch == Touch::kMade) {
      value.maker = signature;
    } else if (value.call >= 0) {
      Close(value, now);
    }
    value.call = last();
    value.place = place++;
    value.last_use = now;
    value.record = records_count_;
    records_[records_count_++ & records_mask_] = {};
  }
  EndCall();
}

void AccessPattern::Mark(uint64_t label) {
  const uint64_t signature = MarkSignature(label);
  Advance(signature);
  Tick(Nanos(0));
  EndCall();
  const auto found = marks_.find(label);
  if (!guided()) {
    const int64_t distance = found == marks_.end() ? 0 : last() - found->second;
    // As far as the finder goes.
    const bool in_ring = distance > 0 && distance <= finder_.history() / 2;
    if (!in_ring || !finder_.Follow(distance)) stored_ = store_.FindCall(signature);
    ChooseGuide();
  }
  if (found != marks_.end()) {
    found->second = last();
    return;
  }
  if (marks_.size() >= kLabelsMax) {
    marks_.erase(std::min_element(marks_.begin(), marks_.end(), [](const auto& a, const auto& b) {
      return a.second < b.second;
    }));
  }
  marks_.emplace(label, last());
}

const UseRecord* AccessPattern::RingRecord(int64_t call, uint32_t place) const {
  if (!InRing(call)) return nullptr;
  const int64_t record = ring(call).first_record + place;
  // Alike calls may differ in how many of their arguments are the same value.
  if (record >= ring(call + 1).first_record) return nullptr;
  if (record < records_count_ - records_mask_ - 1) return nullptr;
  return &records_[record & records_mask_];
}

// Of the last touch of `value`. A touch that the guide does not cover has none.
AccessPattern::Precedent AccessPattern::FindPrecedent(const UseTrack& value) const {
  const int64_t back = last() - value.call;
  if (back >= guide_.matched) return {};
  if (guide_.pattern != nullptr) {
    const int64_t phase = guide_.pattern->Phase(guide_.phase, -back);
    return {guide_.pattern->Record(phase, value.place)};
  }
  const int64_t lag = guide_.period;
  const UseRecord* const record = RingRecord(value.call - lag, value.place);
  // What was used again only after more than a turn is not seen in the last one.
  if (record != nullptr && record->calls == 0 && back + lag < guide_.matched) {
    const UseRecord* const before = RingRecord(value.call - 2 * lag, value.place);
    if (before != nullptr && before->calls > lag) return {before, 2 * lag};
  }
  return {record, lag};
}

// From `call` on as many calls, in the time that it took then.
int64_t AccessPattern::NanosFrom(const Precedent& precedent, int64_t call, int64_t calls) const {
  if (guide_.pattern != nullptr) {
    const int64_t phase = guide_.pattern->Phase(guide_.phase, call - last());
    return guide_.pattern->NanosAfter(phase, calls);
  }
  const int64_t then = call - precedent.lag;
  return ring(then + calls).nanos - ring(then).nanos;
}

// Of its last touch; null if that is so long ago that there is no room for it any more.
UseRecord* AccessPattern::OwnRecord(const UseTrack& value) {
  if (value.call < 0 || records_count_ - value.record > records_mask_ + 1) return nullptr;
  return &records_[value.record & records_mask_];
}

void AccessPattern::OnDropped(const UseTrack& value) {
  if (UseRecord* const record = OwnRecord(value)) record->calls = UseRecord::kDropped;
}

// The value is read by the call that runs: what followed its last touch is known now.
void AccessPattern::Close(const UseTrack& value, Nanos now) {
  const int64_t calls = last() - value.call;
  UseRecord* const own = OwnRecord(value);
  if (calls == 0 || own == nullptr) return;
  own->calls = static_cast<uint32_t>(std::min<int64_t>(calls, UseRecord::kDropped - 1));
  const Precedent precedent = FindPrecedent(value);
  if (!precedent.WasUsed()) return;
  const int64_t predicted = NanosFrom(precedent, value.call, precedent.record->calls);
  const auto off = static_cast<float>(std::abs((now - value.last_use).count() - predicted));
  const float before = precedent.record->error_nanos;
  own->error_nanos = before == 0 ? off : before + (off - before) / kSmoothing;
}

Forecast AccessPattern::NextUse(const UseTrack& value) const {
  if (value.call < 0) return {};
  const Precedent precedent = FindPrecedent(value);
  if (precedent.record == nullptr) return {};
  if (!precedent.WasUsed()) {
    const bool dropped = precedent.record->calls == UseRecord::kDropped;
    // Before a whole turn agrees, a later use may just not have been reached then either.
    const bool known = dropped || guide_.matched >= guide_.period;
    return {.kind = known ? Forecast::kNoneSeen : Forecast::kUnknown};
  }
  const int64_t calls = precedent.record->calls - (last() - value.call);
  if (calls <= 0) return {};  // overdue: it was another value that was used
  return {.kind = Forecast::kExpected,
          .calls = calls,
          .time = Nanos(std::max<int64_t>(1, NanosFrom(precedent, last(), calls))),
          .error = Nanos(std::llround(precedent.record->error_nanos))};
}

// The turn that the ring holds before call `end`, if the store does not know it or knew it
// differently.
void AccessPattern::KeepTurn(int64_t end, int64_t period) {
  const PatternStore::Place known = store_.FindTurn(finder_, end, period);
  if (known.pattern == nullptr) {
    store_.Insert(Describe(end, period, 0));
  } else {
    store_.Refresh(known.pattern, Describe(end, period, period - 1 - known.phase));
  }
}

// The turn of `period` calls before `end`, beginning with the call `shift` after its first.
StoredPattern AccessPattern::Describe(int64_t end, int64_t period, int64_t shift) const {
  StoredPattern turn;
  turn.signatures.reserve(period);
  turn.nanos.reserve(period + 1);
  turn.first_record.reserve(period + 1);
  turn.last_followed = end;
  const auto call_at = [&](int64_t phase) { return end - period + (phase + shift) % period; };
  int64_t nanos = 0;
  for (int64_t phase = 0; phase <= period; ++phase) {
    const int64_t call = call_at(phase % period);
    const int64_t before = call > 0 ? ring(call - 1).nanos : 0;
    if (phase > 0) nanos += ring(call).nanos - before;
    turn.nanos.push_back(nanos);
    turn.first_record.push_back(static_cast<uint32_t>(turn.records.size()));
    if (phase == period) break;
    turn.signatures.push_back(static_cast<uint64_t>(finder_.at(call)));
    for (uint32_t place = 0;; ++place) {
      const UseRecord* record = RingRecord(call, place);
      if (record == nullptr) break;
      // Towards the end of the turn uses are still to come; those of a turn earlier have come.
      const UseRecord* const earlier = RingRecord(call - period, place);
      if (record->calls == 0 && earlier != nullptr) record = earlier;
      turn.records.push_back(*record);
    }
  }
  turn.records.shrink_to_fit();  // it may stay for long
  return turn;
}

}  // namespace ebbtide
