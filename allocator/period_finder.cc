// SPDX-License-Identifier: Apache-2.0
#include "allocator/period_finder.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace ebbtide {
namespace {

constexpr uint64_t kModulus = (uint64_t{1} << 61) - 1;  // prime
constexpr uint64_t kBase = 0x0b7e151628aed2a5 % kModulus;
constexpr int kPlacesMax = 32;  // looked at when a period breaks

uint64_t Multiply(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  const uint64_t sum =
      static_cast<uint64_t>(product & kModulus) + static_cast<uint64_t>(product >> 61);
  return sum >= kModulus ? sum - kModulus : sum;
}

}  // namespace

PeriodFinder::PeriodFinder(int64_t period_max)
    : period_max_(period_max),
      mask_(static_cast<int64_t>(
                std::bit_ceil(static_cast<uint64_t>(2 * std::max(period_max, kWindow)))) -
            1),
      values_(mask_ + 1),
      prefixes_(mask_ + 1),
      heads_(mask_ + 1, -1),
      earlier_(mask_ + 1, -1) {
  EBB_CHECK(period_max > 0) << period_max;
  powers_.push_back(kBase);
  while ((int64_t{1} << powers_.size()) <= mask_) {
    powers_.push_back(Multiply(powers_.back(), powers_.back()));
  }
}

uint64_t PeriodFinder::Append(uint64_t hash, int64_t value) {
  const uint64_t sum = Multiply(hash, kBase) + static_cast<uint64_t>(value) % kModulus + 1;
  return sum >= kModulus ? sum - kModulus : sum;
}

// Of the `length` values before position `end`; a power of two.
uint64_t PeriodFinder::Hash(int64_t end, int64_t length) const {
  const uint64_t power = powers_[std::countr_zero(static_cast<uint64_t>(length))];
  const uint64_t before = Multiply(prefixes_[(end - length) & mask_], power);
  const uint64_t all = prefixes_[end & mask_];
  return all >= before ? all - before : all + kModulus - before;
}

void PeriodFinder::Add(int64_t value) {
  values_[count_ & mask_] = value;
  const uint64_t prefix = Append(prefixes_[count_ & mask_], value);
  ++count_;
  prefixes_[count_ & mask_] = prefix;
  if (candidate_ > 0 && at(count_ - 1 - candidate_) == value) {
    ++matched_;
  } else {
    candidate_ = 0;
    matched_ = -1;
  }
  if (count_ < kWindow) return;
  int64_t& head = heads_[window_hash() & mask_];
  earlier_[count_ & mask_] = head;
  head = count_;
  if (candidate_ == 0) Lookup();
}

// How many values before the end equal those before `earlier`.
int64_t PeriodFinder::Agreement(int64_t earlier) const {
  const int64_t oldest = std::max<int64_t>(0, count_ - mask_);
  int64_t agreed = 0;
  for (int k = static_cast<int>(powers_.size()) - 1; k >= 0; --k) {
    const int64_t length = int64_t{1} << k;
    if (earlier - agreed - length < oldest) continue;
    if (Hash(count_ - agreed, length) == Hash(earlier - agreed, length)) agreed += length;
  }
  return agreed;
}

bool PeriodFinder::Follow(int64_t distance) {
  EBB_CHECK(distance > 0 && distance <= period_max_) << distance;
  const int64_t agreed = distance < count_ ? Agreement(count_ - distance) : 0;
  if (agreed == 0) return false;
  matched_ = agreed;
  candidate_ = distance;
  return true;
}

void PeriodFinder::Lookup() {
  int64_t place = earlier_[count_ & mask_];
  for (int i = 0; i < kPlacesMax && place >= 0 && count_ - place <= period_max_; ++i) {
    // Other windows have the same head too: one look at the value saves many at hashes.
    const int64_t agreed = at(place - 1) == at(count_ - 1) ? Agreement(place) : 0;
    // What holds already is likelier to go on than to end after as many turns as some time before.
    const bool holds = agreed >= kWindow && agreed >= count_ - place;
    if (holds || (agreed >= kWindow && agreed > matched_)) {
      matched_ = agreed;
      candidate_ = count_ - place;
    }
    if (holds) return;
    place = earlier_[place & mask_];
  }
}

}  // namespace ebbtide
