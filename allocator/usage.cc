// SPDX-License-Identifier: Apache-2.0

#include "allocator/usage.h"

namespace ebbtide {

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

}  // namespace ebbtide
