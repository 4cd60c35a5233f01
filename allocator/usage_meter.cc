// SPDX-License-Identifier: Apache-2.0

#include "allocator/usage_meter.h"

namespace ebbtide {
namespace {

Level ToLevel(int64_t in, int64_t out, int64_t peak) {
  return {.current = Bytes(in - out),
          .peak = Bytes(std::max(peak, in - out)),
          .allocated = Bytes(in),
          .freed = Bytes(out)};
}

}  // namespace

ObjectCounts& ObjectCounts::operator+=(const ObjectCounts& other) {
  bytes_in += other.bytes_in;
  bytes_out += other.bytes_out;
  asked_in += other.asked_in;
  asked_out += other.asked_out;
  allocations += other.allocations;
  frees += other.frees;
  return *this;
}

Level UsageMeter::MixedLevel::Read(int64_t objects_in, int64_t objects_out) const {
  return ToLevel(in_ + objects_in, out_ + objects_out, peak_.load(std::memory_order_relaxed));
}

Usage UsageMeter::Read(const ObjectCounts& objects, const Tally& held) const {
  Usage usage;
  usage.live = live_.Read(objects.bytes_in, objects.bytes_out);
  usage.asked = asked_.Read(objects.asked_in, objects.asked_out);
  usage.awaiting = ToLevel(awaiting_.in, awaiting_.out, awaiting_.peak);
  usage.held = ToLevel(held.in, held.out, held.peak);
  // Memory comes from the device and from the program, and goes to either; what awaits has left the
  // program and not come yet.
  usage.cached = ToLevel(held.in + usage.live.freed.count() - awaiting_.in + awaiting_.out,
                         held.out + usage.live.allocated.count(), peak_cached_);
  usage.allocations = allocations_ + objects.allocations;
  usage.frees = frees_ + objects.frees;
  return usage;
}

void UsageMeter::RestartPeaks(const ObjectCounts& objects, const Tally& held) {
  const Usage now = Read(objects, held);
  live_.RestartPeak(now.live.current.count());
  asked_.RestartPeak(now.asked.current.count());
  awaiting_.peak = awaiting_.now();
  peak_cached_ = now.cached.current.count();
}

}  // namespace ebbtide
