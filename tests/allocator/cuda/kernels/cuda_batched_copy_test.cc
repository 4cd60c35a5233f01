// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/cuda_batched_copy.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/allocator/cuda/kernels/gpu.h"

namespace ebbtide {
namespace {

using ::testing::HasSubstr;
using Memory = std::vector<unsigned char>;

// A copy as offsets into two pieces of memory.
struct Move {
  int64_t from;
  int64_t to;
  int64_t bytes;
};

std::vector<BlockCopy> CopiesBetween(unsigned char* from, unsigned char* to,
                                     const std::vector<Move>& moves) {
  std::vector<BlockCopy> copies;
  for (const Move& move : moves) copies.push_back({from + move.from, to + move.to, move.bytes});
  return copies;
}

// Does `moves` on the GPU and on the host, between pieces of memory of `bytes` bytes, and compares
// all of what lies at the destination.
void ExpectSameCopies(size_t bytes, const std::vector<Move>& moves) {
  std::mt19937 random(1);
  Memory from(bytes), to(bytes, 0xcc);
  for (unsigned char& byte : from) byte = static_cast<unsigned char>(random());
  const int64_t count = static_cast<int64_t>(moves.size());
  const GpuMemory gpu_from(from), gpu_to(to);
  const auto on_gpu =
      CopiesBetween(gpu_from.As<unsigned char>(), gpu_to.As<unsigned char>(), moves);
  ASSERT_TRUE(CheckBlockCopies(on_gpu).ok());
  HostCopyBlocks(CopiesBetween(from.data(), to.data(), moves).data(), count);

  const GpuMemory copies(on_gpu);
  const auto size = CudaCopyWorkspace(count);
  ASSERT_TRUE(size.ok()) << size.status();
  const GpuMemory workspace(static_cast<size_t>(size->count()));
  const GpuStream stream;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const absl::Status status =
      CudaCopyBlocks(copies.As<BlockCopy>(), count, workspace.As<>(), *size, stream.get());
  ASSERT_TRUE(status.ok()) << status;
  stream.Wait();
  EXPECT_EQ(gpu_to.Read<unsigned char>(), to);
}

TEST(CudaBatchedCopyTest, MovesThousandsOfBlocksOfAllSizesAndNothingElse) {
  EBB_SKIP_WITHOUT_GPU();
  std::mt19937 random(2);
  constexpr int64_t kBytes = 32 << 20;
  std::vector<Move> moves;
  for (int64_t to = 0; moves.size() < 5000;) {
    const int64_t bytes = random() % (moves.size() % 10 == 0 ? 40000 : 300);
    const int64_t from = random() % (kBytes - bytes);
    moves.push_back({from, to, bytes});
    to += bytes + random() % 3;
    ASSERT_LT(to + 50000, kBytes);
  }
  ExpectSameCopies(kBytes, moves);
}

TEST(CudaBatchedCopyTest, MovesOneBlockOfEverySizeAndAlignment) {
  EBB_SKIP_WITHOUT_GPU();
  for (const int64_t bytes : {0, 1, 3, 4, 8, 15, 16, 17, 127, 128, 1023, 4096, 70001, 5000000}) {
    for (const int64_t from : {0, 1, 6, 16}) {
      for (const int64_t to : {0, 3, 8}) ExpectSameCopies(5000100, {{from, to, bytes}});
    }
  }
}

TEST(CudaBatchedCopyTest, NothingToDoNeedsNoGpu) {
  ASSERT_TRUE(CudaCopyWorkspace(0).ok());
  EXPECT_EQ(*CudaCopyWorkspace(0), Bytes(0));
  EXPECT_TRUE(CudaCopyBlocks(nullptr, 0, nullptr, Bytes(0), nullptr).ok());
}

TEST(CudaBatchedCopyTest, BadCountsAreErrors) {
  for (const int64_t count : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CudaCopyWorkspace(count).status())) << count;
  }
}

TEST(CudaBatchedCopyTest, BadArgumentsAreErrors) {
  EBB_SKIP_WITHOUT_GPU();
  const GpuMemory copies(std::vector<BlockCopy>(3));
  const Bytes size = *CudaCopyWorkspace(3);
  const GpuMemory workspace(static_cast<size_t>(size.count()) + 1);
  const auto copy = [&](BlockCopy* what, char* with, Bytes with_size) {
    return std::string(CudaCopyBlocks(what, 3, with, with_size, nullptr).message());
  };
  EXPECT_EQ(copy(copies.As<BlockCopy>(), workspace.As<char>(), size), "");
  EXPECT_THAT(copy(nullptr, workspace.As<char>(), size), HasSubstr("no copies"));
  EXPECT_THAT(copy(copies.As<BlockCopy>(), workspace.As<char>() + 1, size),
              HasSubstr("not a multiple of 256"));
  EXPECT_THAT(copy(copies.As<BlockCopy>(), workspace.As<char>(), size - Bytes(1)),
              HasSubstr("needs"));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(CudaBatchedCopyTest, WithoutAGpuTheErrorIsCudas) {
  const std::string why = WhyNoGpu();
  if (why.empty()) GTEST_SKIP() << "there is a GPU";
  const absl::Status status = CudaCopyWorkspace(3).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

}  // namespace
}  // namespace ebbtide
