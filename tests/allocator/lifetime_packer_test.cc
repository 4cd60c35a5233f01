// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime_packer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using Lifetimes = std::vector<Lifetime>;

bool LiveTogether(const Lifetime& a, const Lifetime& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < a.end && b.begin < b.end && a.begin < b.end &&
         b.begin < a.end;
}

// Counted the slow way: at each begin, what lives there.
int64_t MostLive(const Lifetimes& lifetimes, int64_t alignment) {
  int64_t most = 0;
  for (const Lifetime& at : lifetimes) {
    int64_t live = 0;
    for (const Lifetime& other : lifetimes) {
      if (at.begin < at.end && other.begin <= at.begin && at.begin < other.end) {
        live += (other.bytes + alignment - 1) / alignment * alignment;
      }
    }
    most = std::max(most, live);
  }
  return most;
}

void ExpectValid(const Lifetimes& lifetimes, const Packing& packing, int64_t alignment = 1) {
  ASSERT_EQ(packing.offsets.size(), lifetimes.size());
  int64_t height = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const int64_t low = packing.offsets[i], high = low + lifetimes[i].bytes;
    ASSERT_GE(low, 0) << i;
    ASSERT_EQ(low % alignment, 0) << i;
    if (lifetimes[i].fixed >= 0 && lifetimes[i].begin < lifetimes[i].end) {
      ASSERT_EQ(low, lifetimes[i].fixed) << i;
    }
    height = std::max(height, high);
    for (size_t j = 0; j < i; ++j) {
      if (!LiveTogether(lifetimes[i], lifetimes[j])) continue;
      const int64_t other = packing.offsets[j];
      ASSERT_TRUE(high <= other || other + lifetimes[j].bytes <= low)
          << i << " at " << low << " and " << j << " at " << other;
    }
  }
  EXPECT_EQ(packing.height, height);
  const int64_t live = MostLive(lifetimes, alignment);
  EXPECT_EQ(MaxLiveBytes(lifetimes, alignment), live);
  EXPECT_GE(packing.height, live - alignment + 1);
}

Lifetimes Random(int count, int64_t span, int64_t longest, int64_t largest, uint32_t seed) {
  std::mt19937 draw(seed);
  Lifetimes lifetimes;
  for (int i = 0; i < count; ++i) {
    const int64_t begin = draw() % span;
    const int64_t length = 1 + draw() % longest;
    lifetimes.push_back({begin, begin + length, 1 + static_cast<int64_t>(draw() % largest)});
  }
  return lifetimes;
}

// Drops the buffers in the order given, each onto those below that live with it.
int64_t HeightOfOrder(const Lifetimes& lifetimes, const std::vector<int>& order, bool use_gaps) {
  std::vector<int> placed;
  std::vector<int64_t> offsets(lifetimes.size());
  int64_t height = 0;
  for (int next : order) {
    std::sort(placed.begin(), placed.end(), [&](int a, int b) { return offsets[a] < offsets[b]; });
    int64_t at = 0;
    for (int other : placed) {
      if (!LiveTogether(lifetimes[next], lifetimes[other])) continue;
      if (use_gaps && offsets[other] - at >= lifetimes[next].bytes) break;
      at = std::max(at, offsets[other] + lifetimes[other].bytes);
    }
    offsets[next] = at;
    placed.push_back(next);
    height = std::max(height, at + lifetimes[next].bytes);
  }
  return height;
}

// Some optimal packing is pressed down, and then the order of its offsets reproduces it.
int64_t Optimum(const Lifetimes& lifetimes) {
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  int64_t best = std::numeric_limits<int64_t>::max();
  do {
    best = std::min(best, HeightOfOrder(lifetimes, order, false));
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

int64_t GreedyBySize(const Lifetimes& lifetimes) {
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  return HeightOfOrder(lifetimes, order, true);
}

TEST(LifetimePackerTest, NothingToPack) {
  const Packing packing = PackLifetimes({});
  EXPECT_TRUE(packing.offsets.empty());
  EXPECT_EQ(packing.height, 0);
  EXPECT_EQ(MaxLiveBytes({}), 0);
}

TEST(LifetimePackerTest, EmptyBuffersAndEmptyLifetimesConflictWithNothing) {
  const Lifetimes lifetimes = {{0, 10, 0}, {0, 10, 100}, {5, 5, 70}, {8, 3, 60}, {2, 4, 0}};
  const Packing packing = PackLifetimes(lifetimes);
  ExpectValid(lifetimes, packing);
  EXPECT_EQ(packing.height, 100);
}

TEST(LifetimePackerTest, AnEndAndABeginAtOneInstantShareBytes) {
  const Lifetimes lifetimes = {{0, 5, 64}, {5, 9, 64}, {-7, 0, 64}};
  EXPECT_EQ(PackLifetimes(lifetimes).height, 64);
}

TEST(LifetimePackerTest, ReachesTheOptimumOfSmallProblems) {
  int greedy_fails = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Lifetimes lifetimes = Random(7, 10, 6, 9, seed);
    const Packing packing = PackLifetimes(lifetimes, {.max_steps = 200'000});
    ExpectValid(lifetimes, packing);
    const int64_t optimum = Optimum(lifetimes);
    ASSERT_EQ(packing.height, optimum) << "seed " << seed;
    greedy_fails += GreedyBySize(lifetimes) > optimum ? 1 : 0;
  }
  // Else these problems say nothing about the search.
  EXPECT_GE(greedy_fails, 10);
}

// The layers of a perfect packing: each level of the space is cut along time, so that max live
// bytes are reached at every instant and the optimum is known.
Lifetimes Perfect(int levels, int64_t span, uint32_t seed) {
  std::mt19937 draw(seed);
  Lifetimes lifetimes;
  for (int level = 0; level < levels; ++level) {
    const int64_t bytes = 1 + draw() % 50;
    for (int64_t begin = 0; begin < span;) {
      const int64_t end = std::min<int64_t>(span, begin + 1 + draw() % 20);
      lifetimes.push_back({begin, end, bytes});
      begin = end;
    }
  }
  std::shuffle(lifetimes.begin(), lifetimes.end(), draw);
  return lifetimes;
}

TEST(LifetimePackerTest, SearchBeatsGreedyBySizeOnAPerfectPacking) {
  const Lifetimes lifetimes = Perfect(6, 60, 3);
  const int64_t live = MaxLiveBytes(lifetimes);
  EXPECT_GT(GreedyBySize(lifetimes), live);
  const Packing packing = PackLifetimes(lifetimes);
  ExpectValid(lifetimes, packing);
  EXPECT_EQ(packing.height, live);
}

// A rectangle of time and space, cut at random until there are `count` pieces: all of it is live
// at every instant, and the one height that loses nothing is known.
Lifetimes CutUp(int count, int64_t span, int64_t height, uint32_t seed) {
  std::mt19937 draw(seed);
  Lifetimes pieces = {{0, span, height}};
  while (static_cast<int>(pieces.size()) < count) {
    Lifetime& piece = pieces[draw() % pieces.size()];
    Lifetime rest = piece;
    if (draw() % 2 == 0 && piece.end - piece.begin > 1) {
      piece.end = rest.begin = piece.begin + 1 + draw() % (piece.end - piece.begin - 1);
    } else if (piece.bytes > 1) {
      piece.bytes = 1 + draw() % (piece.bytes - 1);
      rest.bytes -= piece.bytes;
    } else {
      continue;
    }
    pieces.push_back(rest);
  }
  std::shuffle(pieces.begin(), pieces.end(), draw);
  return pieces;
}

TEST(LifetimePackerTest, SearchPutsWhatWasCutUpTogetherAgain) {
  int64_t sweep = 0, search = 0, exact = 0;
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Lifetimes lifetimes = CutUp(120, 1000, 10'000, seed);
    const Packing packing = PackLifetimes(lifetimes);
    ASSERT_NO_FATAL_FAILURE(ExpectValid(lifetimes, packing)) << "seed " << seed;
    EXPECT_LE(packing.height, 10'400) << "seed " << seed;
    search += packing.height;
    sweep += PackLifetimes(lifetimes, {.max_steps = 0}).height;
    exact += packing.height == 10'000 ? 1 : 0;
  }
  EXPECT_GE(exact, 7);
  EXPECT_GE(sweep, 110'000);  // else these problems say nothing about the search
  EXPECT_LE(search, 101'000);
}

TEST(LifetimePackerTest, MoreStepsAreNeverWorse) {
  const Lifetimes lifetimes = CutUp(200, 1000, 10'000, 11);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t steps : {0, 10'000, 300'000, 10'000'000}) {
    const Packing packing = PackLifetimes(lifetimes, {.max_steps = steps});
    ExpectValid(lifetimes, packing);
    EXPECT_LE(packing.height, before) << steps;
    before = packing.height;
  }
  EXPECT_LT(before, PackLifetimes(lifetimes, {.max_steps = 0}).height);
}

TEST(LifetimePackerTest, KeepsTheAlignment) {
  for (int64_t alignment : {2, 3, 256, 512}) {
    const Lifetimes lifetimes = Random(100, 50, 20, 2000, static_cast<uint32_t>(alignment));
    ExpectValid(lifetimes,
                PackLifetimes(lifetimes, {.alignment = alignment, .max_steps = 2'000'000}),
                alignment);
  }
}

// What lives at both ends of time keeps its place, and the others use that place in between.
TEST(LifetimePackerTest, PacksAroundWhatIsFixed) {
  int perfect = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Lifetimes lifetimes = Random(60, 60, 15, 300, seed);
    std::mt19937 draw(seed);
    int64_t offset = 0;
    for (int i = 0; i < 5; ++i) {
      const int64_t bytes = 1 + draw() % 300;
      const int64_t end = 5 + draw() % 15, begin = 60 + draw() % 10;
      lifetimes.push_back({-1, end, bytes, offset});
      lifetimes.push_back({begin, 80, bytes, offset});
      offset += bytes;
    }
    for (int64_t steps : {0, 300'000}) {
      const Packing packing = PackLifetimes(lifetimes, {.max_steps = steps});
      ASSERT_NO_FATAL_FAILURE(ExpectValid(lifetimes, packing)) << "seed " << seed;
      perfect += steps > 0 && packing.height == std::max(offset, MaxLiveBytes(lifetimes)) ? 1 : 0;
    }
  }
  EXPECT_GE(perfect, 20);
}

// The search counts in 32 bits; what is larger is rounded for it, but never what comes back.
TEST(LifetimePackerTest, HeightsBeyondThirtyTwoBits) {
  Lifetimes lifetimes = Perfect(6, 60, 3);
  for (Lifetime& lifetime : lifetimes) lifetime.bytes = (lifetime.bytes << 40) + 1;
  const Packing packing = PackLifetimes(lifetimes);
  ExpectValid(lifetimes, packing);
  EXPECT_LE(packing.height, MaxLiveBytes(lifetimes) + 6);
}

TEST(LifetimePackerTest, StopsAtTheCapacity) {
  const Lifetimes lifetimes = CutUp(120, 1000, 10'000, 11);
  const int64_t loose = PackLifetimes(lifetimes, {.max_steps = 0}).height;
  const int64_t tight = PackLifetimes(lifetimes, {.max_steps = 10'000'000}).height;
  ASSERT_LT(tight, loose);
  EXPECT_EQ(PackLifetimes(lifetimes, {.capacity = loose}).height, loose);
  const int64_t between = tight + (loose - tight) / 2;
  EXPECT_LE(PackLifetimes(lifetimes, {.capacity = between}).height, between);
}

TEST(LifetimePackerTest, SameInputSamePacking) {
  const Lifetimes lifetimes = CutUp(200, 1000, 10'000, 5);
  ASSERT_LT(PackLifetimes(lifetimes).height, PackLifetimes(lifetimes, {.max_steps = 0}).height);
  const PackOptions options = {.max_steps = 3'000'000};
  const Packing once = PackLifetimes(lifetimes, options);
  const Packing again = PackLifetimes(lifetimes, options);
  EXPECT_EQ(once.offsets, again.offsets);
}

TEST(LifetimePackerTest, ThreeThousandBuffers) {
  const Lifetimes lifetimes = Random(3000, 3000, 300, 1 << 20, 7);
  const Packing packing = PackLifetimes(lifetimes);
  ExpectValid(lifetimes, packing);
  EXPECT_LE(packing.height, 1.15 * MaxLiveBytes(lifetimes));
}

}  // namespace
}  // namespace ebbtide
