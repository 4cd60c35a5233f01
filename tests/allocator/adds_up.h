// SPDX-License-Identifier: Apache-2.0
//
// ExpectAddsUp: what must hold between an allocator's numbers at every moment, whatever runs
// beside.
//
// Threads: pure functions, safe on any. Ownership: none. To demand more of the numbers, add it
// here.

#ifndef EBBTIDE_TESTS_ALLOCATOR_ADDS_UP_H_
#define EBBTIDE_TESTS_ALLOCATOR_ADDS_UP_H_

#include "allocator/caching_allocator.h"
#include "gtest/gtest.h"

namespace ebbtide {

inline void ExpectAddsUp(const Level& level, const char* what) {
  EXPECT_EQ(level.allocated - level.freed, level.current) << what;
  EXPECT_GE(level.current, Bytes(0)) << what;
  EXPECT_LE(level.current, level.peak) << what;
}

inline void ExpectAddsUp(const Usage& usage, const char* what) {
  ExpectAddsUp(usage.live, what);
  ExpectAddsUp(usage.asked, what);
  ExpectAddsUp(usage.awaiting, what);
  ExpectAddsUp(usage.cached, what);
  ExpectAddsUp(usage.held, what);
  EXPECT_EQ(usage.held.current, usage.live.current + usage.awaiting.current + usage.cached.current)
      << what;
  EXPECT_LE(usage.asked.current, usage.live.current) << what;
  EXPECT_GE(usage.live_blocks(), 0) << what;
}

inline void ExpectAddsUp(const AllocatorStats& s) {
  EXPECT_EQ(s.held, s.live + s.awaiting + s.cached);
  EXPECT_EQ(s.live, s.asked + s.rounding);
  EXPECT_EQ(s.allocations - s.frees, s.live_blocks);
  EXPECT_GE(s.cached, Bytes(0));
  EXPECT_GE(s.live, Bytes(0));
  EXPECT_GE(s.rounding, Bytes(0));
  EXPECT_LE(s.held, s.reserved);
  EXPECT_LE(s.held, s.peak_held);
  EXPECT_LE(s.live, s.peak_live);
  EXPECT_LE(s.peak_held, s.budget);
  ExpectAddsUp(s.small, "small");
  ExpectAddsUp(s.large, "large");
  Usage kinds = s.small;
  kinds += s.large;
  Usage pools;
  for (const PoolUsage& pool : s.pools) {
    ExpectAddsUp(pool.usage, "pool");
    pools += pool.usage;
  }
  for (const Usage& sum : {kinds, pools}) {
    const char* const what = &sum == &kinds ? "kinds" : "pools";
    EXPECT_EQ(sum.held.current, s.held) << what;
    EXPECT_EQ(sum.live.current, s.live) << what;
    EXPECT_EQ(sum.asked.current, s.asked) << what;
    EXPECT_EQ(sum.awaiting.current, s.awaiting) << what;
    EXPECT_EQ(sum.cached.current, s.cached) << what;
    EXPECT_EQ(sum.allocations, s.allocations) << what;
    EXPECT_EQ(sum.frees, s.frees) << what;
    EXPECT_GE(sum.held.peak, s.held) << what;
    EXPECT_LE(s.small.held.peak, s.peak_held);
  }
  for (const Level Usage::*level : {&Usage::live, &Usage::asked, &Usage::awaiting, &Usage::held}) {
    EXPECT_EQ((kinds.*level).allocated, (pools.*level).allocated);
    EXPECT_EQ((kinds.*level).freed, (pools.*level).freed);
  }
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_ADDS_UP_H_
