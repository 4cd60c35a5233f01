// SPDX-License-Identifier: Apache-2.0

#include "allocator/usage.h"

#include "absl/strings/str_format.h"

namespace ebbtide {
namespace {

std::string FormatLevel(const char* name, const Level& level) {
  return absl::StrFormat("%s %s (peak %s, %s came), ", name, FormatBytes(level.current),
                         FormatBytes(level.peak), FormatBytes(level.allocated));
}

}  // namespace

Level& Level::operator+=(const Level& other) {
  current += other.current;
  peak += other.peak;
  allocated += other.allocated;
  freed += other.freed;
  return *this;
}

Level& Level::operator-=(const Level& other) {
  current -= other.current;
  allocated -= other.allocated;
  freed -= other.freed;
  return *this;
}

Usage& Usage::operator+=(const Usage& other) {
  live += other.live;
  asked += other.asked;
  awaiting += other.awaiting;
  cached += other.cached;
  held += other.held;
  allocations += other.allocations;
  frees += other.frees;
  return *this;
}

Usage& Usage::operator-=(const Usage& other) {
  live -= other.live;
  asked -= other.asked;
  awaiting -= other.awaiting;
  cached -= other.cached;
  held -= other.held;
  allocations -= other.allocations;
  frees -= other.frees;
  return *this;
}

std::string FormatUsage(const Usage& usage) {
  return FormatLevel("live", usage.live) + FormatLevel("asked", usage.asked) +
         FormatLevel("awaiting", usage.awaiting) + FormatLevel("cached", usage.cached) +
         FormatLevel("held", usage.held) +
         absl::StrFormat("%d allocations, %d frees", usage.allocations, usage.frees);
}

}  // namespace ebbtide
