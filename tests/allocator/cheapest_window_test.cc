// SPDX-License-Identifier: Apache-2.0
#include "allocator/cheapest_window.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using Blocks = std::vector<WindowBlock>;

constexpr double kImmovable = WindowBlock::kImmovable;

WindowBlock Same(const WindowBlock& block) { return block; }

// Neighbours from address 1000 on; a negative size is a gap.
Blocks Neighbours(const std::vector<std::pair<int64_t, double>>& sizes_and_scores) {
  Blocks blocks;
  uintptr_t at = 1000;
  for (const auto& [size, score] : sizes_and_scores) {
    if (size > 0) blocks.push_back({at, Bytes(size), score});
    at += static_cast<uintptr_t>(std::abs(size));
  }
  return blocks;
}

// A window as places in the list, to be compared.
struct Found {
  size_t first;
  size_t last;
  double score;

  friend bool operator==(const Found&, const Found&) = default;
};

std::ostream& operator<<(std::ostream& out, const Found& found) {
  return out << "[" << found.first << ", " << found.last << ") for " << found.score;
}

template <typename Answer>
std::optional<Found> Places(const Blocks& blocks, const Answer& answer) {
  if (!answer.has_value()) return std::nullopt;
  EXPECT_EQ(answer->begin, answer->first->begin);
  Bytes size;
  for (auto i = answer->first; i != answer->last; ++i) size += i->size;
  EXPECT_EQ(answer->size, size);
  return Found{static_cast<size_t>(answer->first - blocks.begin()),
               static_cast<size_t>(answer->last - blocks.begin()), answer->score};
}

std::optional<Found> Find(const Blocks& blocks, Bytes bytes) {
  return Places(blocks, CheapestWindow(blocks.begin(), blocks.end(), bytes, Same));
}

// By definition: all windows there are; the least score, then the first end, then the last begin.
std::optional<Found> FindAmongAll(const Blocks& blocks, Bytes bytes) {
  std::optional<Found> best;
  for (size_t last = 1; last <= blocks.size(); ++last) {
    for (size_t first = last; first-- > 0;) {
      if (blocks[first].score == kImmovable) break;
      if (first + 1 < last &&
          blocks[first].begin + static_cast<uintptr_t>(blocks[first].size.count()) !=
              blocks[first + 1].begin) {
        break;
      }
      Bytes size;
      double score = 0;
      for (size_t i = first; i < last; ++i) {
        size += blocks[i].size;
        score += blocks[i].score;
      }
      if (size >= bytes && (!best || score < best->score)) best = Found{first, last, score};
    }
  }
  return best;
}

// Whole scores, whose sums are exact; many of them equal.
Blocks RandomBlocks(std::mt19937& random) {
  std::vector<std::pair<int64_t, double>> blocks;
  const uint32_t count = random() % 25;
  const uint32_t kinds = 1 + random() % 10;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t kind = random() % kinds;
    const auto size = static_cast<int64_t>(1 + random() % 8);
    if (kind == 9) blocks.push_back({-size, 0});
    blocks.push_back({size, kind == 8   ? kImmovable
                            : kind >= 5 ? 0.0
                                        : static_cast<double>(1 + random() % 6)});
  }
  return Neighbours(blocks);
}

TEST(CheapestWindowTest, IsTheBestOfAllWindows) {
  std::mt19937 random(1);
  int found = 0;
  constexpr int kRounds = 30000;
  for (int round = 0; round < kRounds; ++round) {
    const Blocks blocks = RandomBlocks(random);
    const Bytes bytes(1 + static_cast<int64_t>(random() % 30));
    const auto expected = FindAmongAll(blocks, bytes);
    ASSERT_EQ(Find(blocks, bytes), expected) << round;
    found += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(found, kRounds / 4);
  EXPECT_LT(found, kRounds);
}

TEST(CheapestWindowTest, IsTheBestOfAllWindowsWhenScoresDifferByHundredsOfDecades) {
  std::mt19937 random(2);
  for (int round = 0; round < 5000; ++round) {
    Blocks blocks = RandomBlocks(random);
    for (WindowBlock& block : blocks) {
      if (block.score == 0 || block.score == kImmovable) continue;
      block.score = std::ldexp(1 + static_cast<double>(random()) / 4294967296.0,
                               static_cast<int>(random() % 1800) - 900);
    }
    const Bytes bytes(1 + static_cast<int64_t>(random() % 30));
    const auto expected = FindAmongAll(blocks, bytes);
    const auto actual = Find(blocks, bytes);
    ASSERT_EQ(actual.has_value(), expected.has_value()) << round;
    // At most 25 additions, each off by 2^-53 of its result.
    if (!actual) continue;
    ASSERT_LE(actual->score, expected->score * (1 + 25 * 0x1p-52)) << round;
  }
}

TEST(CheapestWindowTest, IsAsGoodNearTheCheapestVictim) {
  std::mt19937 random(3);
  int near = 0;
  for (int round = 0; round < 30000; ++round) {
    const Blocks blocks = RandomBlocks(random);
    const auto cheaper = [](const WindowBlock& a, const WindowBlock& b) {
      return (a.score == 0 ? kImmovable : a.score) < (b.score == 0 ? kImmovable : b.score);
    };
    const auto hint = std::min_element(blocks.begin(), blocks.end(), cheaper);
    if (hint == blocks.end() || hint->score == 0 || hint->score == kImmovable) continue;
    const Bytes bytes(1 + static_cast<int64_t>(random() % 30));
    const auto expected = Find(blocks, bytes);
    if (expected && expected->score == 0) continue;  // The allocator would just take it.
    const auto actual =
        Places(blocks, CheapestWindowNear(hint, blocks.begin(), blocks.end(), bytes, Same));
    ASSERT_EQ(actual.has_value(), expected.has_value()) << round;
    if (!actual) continue;
    ASSERT_EQ(actual->score, expected->score) << round;
    const Blocks part(blocks.begin() + static_cast<int64_t>(actual->first),
                      blocks.begin() + static_cast<int64_t>(actual->last));
    ASSERT_EQ(Find(part, bytes), (Found{0, part.size(), actual->score})) << round;
    near += actual->score == hint->score ? 1 : 0;
  }
  EXPECT_GT(near, 1000);
}

TEST(CheapestWindowTest, FreeNeighboursExtendTheWindowForNothing) {
  const Blocks blocks = Neighbours({{64, 1}, {64, 1}, {40, 0}, {20, 3}, {40, 0}, {64, 2}});
  EXPECT_EQ(Find(blocks, 100_B), (Found{1, 3, 1}));
  EXPECT_EQ(Find(blocks, 104_B), (Found{1, 3, 1}));
  EXPECT_EQ(Find(blocks, 105_B), (Found{0, 2, 2}));
  EXPECT_EQ(Find(blocks, 129_B), (Found{0, 3, 2}));
}

TEST(CheapestWindowTest, ImmovableBlocksAndGapsEndAWindow) {
  EXPECT_EQ(Find(Neighbours({{50, 1}, {1, kImmovable}, {50, 1}}), 51_B), std::nullopt);
  EXPECT_EQ(Find(Neighbours({{50, 1}, {-1, 0}, {50, 1}}), 51_B), std::nullopt);
  EXPECT_EQ(Find(Neighbours({{50, 1}, {50, 1}}), 51_B), (Found{0, 2, 2}));
  EXPECT_EQ(Find(Neighbours({{50, kImmovable}}), 1_B), std::nullopt);
  EXPECT_EQ(Find({}, 1_B), std::nullopt);
}

TEST(CheapestWindowTest, AnExpensiveBlockThatWasPassedLeavesNoTrace) {
  // With a running sum, 1e30 + 1 - 1e30 would make the first 1 a 0.
  const Blocks blocks = Neighbours({{8, 1e30}, {8, 1}, {8, 1}, {8, 0.5}, {8, 1}});
  EXPECT_EQ(Find(blocks, 16_B), (Found{2, 4, 1.5}));
}

TEST(CheapestWindowTest, EqualScoresAreDecidedByAddress) {
  EXPECT_EQ(Find(Neighbours({{8, 2}, {8, 1}, {8, 1}, {8, 1}, {8, 1}}), 16_B), (Found{1, 3, 2}));
  // The free block in front is not needed.
  EXPECT_EQ(Find(Neighbours({{8, 0}, {16, 1}, {8, 5}}), 16_B), (Found{1, 2, 1}));
}

TEST(CheapestWindowTest, TakesTheListAsItIsAndAsksTwiceABlockAtMost) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const Blocks blocks = RandomBlocks(random);
    const std::list<WindowBlock> list(blocks.begin(), blocks.end());
    const Bytes bytes(1 + static_cast<int64_t>(random() % 20));
    size_t calls = 0;
    const auto describe = [&](const WindowBlock& block) {
      ++calls;
      return block;
    };
    const auto window = CheapestWindow(list.begin(), list.end(), bytes, describe);
    EXPECT_LE(calls, 2 * blocks.size());
    const auto expected = Find(blocks, bytes);
    ASSERT_EQ(window.has_value(), expected.has_value());
    if (!window) continue;
    EXPECT_EQ(std::distance(list.begin(), window->first), static_cast<int64_t>(expected->first));
    EXPECT_EQ(std::distance(list.begin(), window->last), static_cast<int64_t>(expected->last));
  }
}

TEST(CheapestWindowTest, NearAGoodVictimOnlyItsNeighboursAreLookedAt) {
  Blocks blocks;
  for (uintptr_t i = 0; i < 10000; ++i) blocks.push_back({i * 64, 64_B, i % 2 == 0 ? 0.0 : 5.0});
  blocks[7001].score = 4;
  int calls = 0;
  const auto describe = [&](const WindowBlock& block) {
    ++calls;
    return block;
  };
  const auto window =
      CheapestWindowNear(blocks.cbegin() + 7001, blocks.cbegin(), blocks.cend(), 192_B, describe);
  EXPECT_EQ(Places(blocks, window), (Found{7000, 7003, 4}));
  EXPECT_LT(calls, 30);
}

}  // namespace
}  // namespace ebbtide
