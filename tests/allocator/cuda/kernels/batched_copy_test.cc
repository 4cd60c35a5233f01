// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/batched_copy.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::HasSubstr;
using Memory = std::vector<unsigned char>;

Memory RandomMemory(size_t bytes) {
  std::mt19937 random(1);
  Memory memory(bytes);
  for (unsigned char& byte : memory) byte = static_cast<unsigned char>(random());
  return memory;
}

TEST(BatchedCopyTest, MovesThousandsOfBlocksOfAllSizesAndNothingElse) {
  std::mt19937 random(2);
  Memory from = RandomMemory(1 << 20);
  Memory to(from.size(), 0xcc);
  Memory expected = to;
  std::vector<BlockCopy> copies;
  size_t at = 0;
  while (copies.size() < 5000) {
    const size_t bytes = random() % 10 == 0 ? random() % 1000 : random() % 32;
    const size_t source = random() % (from.size() - bytes);
    copies.push_back({&from[source], &to[at], static_cast<int64_t>(bytes)});
    for (size_t i = 0; i < bytes; ++i) expected[at + i] = from[source + i];
    at += bytes + random() % 3;  // Some lie wall to wall.
    ASSERT_LT(at + 2000, to.size());
  }
  ASSERT_TRUE(CheckBlockCopies(copies).ok());
  HostCopyBlocks(copies.data(), static_cast<int64_t>(copies.size()));
  EXPECT_EQ(to, expected);
}

TEST(BatchedCopyTest, NothingToCopyNeedsNoMemory) {
  HostCopyBlocks(nullptr, 0);
  const BlockCopy nothing;
  EXPECT_TRUE(CheckBlockCopies({nothing, nothing}).ok());
  HostCopyBlocks(&nothing, 1);
}

std::string ErrorOf(const std::vector<BlockCopy>& copies) {
  const absl::Status status = CheckBlockCopies(copies);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(BatchedCopyTest, NamesWhatCannotBeCopied) {
  Memory m(64);
  const BlockCopy good{&m[0], &m[32], 8};
  EXPECT_EQ(ErrorOf({good}), "");
  EXPECT_THAT(ErrorOf({good, {&m[8], &m[40], -1}}), HasSubstr("copy 1: negative size -1"));
  EXPECT_THAT(ErrorOf({{nullptr, &m[40], 1}}), HasSubstr("copy 0: null address"));
  EXPECT_THAT(ErrorOf({good, {&m[8], nullptr, 1}}), HasSubstr("copy 1: null address"));
  EXPECT_EQ(ErrorOf({{&m[8], nullptr, 0}}), "");
  void* const high = reinterpret_cast<void*>(std::numeric_limits<uintptr_t>::max() - 7);
  EXPECT_THAT(ErrorOf({{&m[8], high, 16}}), HasSubstr("copy 0: runs over the end"));
}

TEST(BatchedCopyTest, NamesTheBlocksThatOverlap) {
  Memory m(64);
  const BlockCopy first{&m[0], &m[32], 8};
  EXPECT_EQ(ErrorOf({first, {&m[0], &m[40], 8}}), "");  // Sources may overlap.
  EXPECT_EQ(ErrorOf({first, {&m[8], &m[24], 8}}), "");  // Touching is not overlapping.
  EXPECT_THAT(ErrorOf({first, {&m[16], &m[39], 8}}), HasSubstr("copies 0 and 1 write"));
  EXPECT_THAT(ErrorOf({first, {&m[16], &m[32], 8}}), HasSubstr("copies 0 and 1 write"));
  EXPECT_THAT(ErrorOf({first, {&m[39], &m[48], 8}}), HasSubstr("copy 1 reads what copy 0 writes"));
  EXPECT_THAT(ErrorOf({first, {&m[48], &m[7], 8}}), HasSubstr("copy 0 reads what copy 1 writes"));
  EXPECT_THAT(ErrorOf({{&m[0], &m[0], 8}}), HasSubstr("copy 0 reads what copy 0 writes"));
  EXPECT_THAT(ErrorOf({{&m[0], &m[4], 8}}), HasSubstr("copy 0 reads what copy 0 writes"));
  EXPECT_EQ(ErrorOf({first, {&m[36], &m[36], 0}}), "");  // No bytes, no overlap.
}

// Against the rule itself, byte by byte.
TEST(BatchedCopyTest, FindsOverlapExactlyWhereThereIsOne) {
  std::mt19937 random(4);
  Memory m(48);
  int bad = 0;
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<BlockCopy> copies;
    std::vector<int> writers(m.size()), readers(m.size());
    for (uint32_t i = 0; i < 1 + random() % 4; ++i) {
      const size_t bytes = random() % 7, from = random() % 42, to = random() % 42;
      copies.push_back({&m[from], &m[to], static_cast<int64_t>(bytes)});
      for (size_t j = 0; j < bytes; ++j) {
        ++readers[from + j];
        ++writers[to + j];
      }
    }
    bool overlap = false;
    for (size_t i = 0; i < m.size(); ++i) {
      overlap |= writers[i] > 1 || (writers[i] == 1 && readers[i] > 0);
    }
    ASSERT_EQ(CheckBlockCopies(copies).ok(), !overlap) << round;
    bad += overlap ? 1 : 0;
  }
  EXPECT_GT(bad, kRounds / 5);
  EXPECT_LT(bad, kRounds * 4 / 5);
}

}  // namespace
}  // namespace ebbtide
