// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/call_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace ebbtide {
namespace {

constexpr float kLaterWeight = 1.0F / 8;

// Further from the mean than its usual scatter explains. A quarter of the mean is always allowed:
// clocks of processors differ by as much from one moment to the next.
bool FarOff(float cost, float mean, float deviation) {
  return std::abs(cost - mean) > 4 * deviation + mean / 4;
}

}  // namespace

CallCosts::CallCosts(int64_t signatures_max)
    : entries_(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(signatures_max, kWays)))) {
  EBB_CHECK(signatures_max > 0) << signatures_max;
}

size_t CallCosts::SetOf(uint64_t signature) const {
  // Fibonacci hashing: signatures that differ in few bits are spread.
  const uint64_t mixed = (signature * 0x9e3779b97f4a7c15) >> 32;
  return (mixed & (entries_.size() / kWays - 1)) * kWays;
}

const CallCosts::Entry* CallCosts::Find(uint64_t signature) const {
  const Entry* const set = &entries_[SetOf(signature)];
  for (size_t i = 0; i < kWays; ++i) {
    if (set[i].last_asked > 0 && set[i].signature == signature) return &set[i];
  }
  return nullptr;
}

CallCosts::Entry& CallCosts::FindOrAdd(uint64_t signature) {
  Entry* entry = const_cast<Entry*>(Find(signature));
  if (entry == nullptr) {
    Entry* const set = &entries_[SetOf(signature)];
    entry = std::min_element(set, set + kWays, [](const Entry& a, const Entry& b) {
      return a.last_asked < b.last_asked;
    });
    *entry = Entry{};
    entry->signature = signature;
  }
  entry->last_asked = ++asked_;
  return *entry;
}

bool CallCosts::WantsSample(uint64_t signature) {
  Entry& entry = FindOrAdd(signature);
  if (entry.wait > 0) {
    --entry.wait;
    return false;
  }
  entry.wait = entry.gap - 1;
  return true;
}

void CallCosts::Add(uint64_t signature, Nanos cost) {
  Entry& entry = FindOrAdd(signature);
  const auto nanos = static_cast<float>(cost.count());
  if (entry.samples >= kFirstSamples && FarOff(nanos, entry.mean_nanos, entry.deviation_nanos)) {
    const bool again = entry.doubted;
    entry.doubted = !again;
    entry.gap = 1;
    entry.wait = 0;
    if (!again) return;
    entry.samples = 0;
  } else {
    entry.doubted = false;
  }
  ++entry.samples;
  const float weight = std::max(1.0F / static_cast<float>(entry.samples), kLaterWeight);
  const float off = nanos - entry.mean_nanos;
  entry.mean_nanos += weight * off;
  // The first sample has nothing to differ from.
  entry.deviation_nanos =
      entry.samples == 1 ? 0
                         : entry.deviation_nanos + weight * (std::abs(off) - entry.deviation_nanos);
  if (entry.samples >= kFirstSamples) {
    entry.gap = std::min(2 * entry.gap, kGapMax);
    entry.wait = entry.gap - 1;
  }
}

std::optional<Nanos> CallCosts::CostOf(uint64_t signature) const {
  const Entry* const entry = Find(signature);
  if (entry == nullptr || entry->samples == 0) return std::nullopt;
  return Nanos(std::llround(entry->mean_nanos));
}

}  // namespace ebbtide
