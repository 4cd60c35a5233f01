// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/cuda_digest.h"

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

std::vector<uint32_t> RandomWords(size_t count) {
  std::mt19937 random(1);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = random();
  return words;
}

// A buffer as an offset into one large piece of memory.
struct Place {
  int64_t offset;
  int64_t bytes;
};

std::vector<DigestBuffer> BuffersAt(const void* memory, const std::vector<Place>& places) {
  std::vector<DigestBuffer> buffers;
  for (const Place& place : places) {
    buffers.push_back({static_cast<const char*>(memory) + place.offset, place.bytes});
  }
  return buffers;
}

// Compares the GPU's digests of `places` in `words` with the host's.
void ExpectSameDigests(const std::vector<uint32_t>& words, const std::vector<Place>& places) {
  const int64_t count = static_cast<int64_t>(places.size());
  std::vector<Digest> expected(places.size());
  HostDigests(BuffersAt(words.data(), places).data(), count, expected.data());

  const GpuMemory content(words);
  const GpuMemory buffers(BuffersAt(content.As<>(), places));
  const GpuMemory digests(places.size() * sizeof(Digest));
  const auto size = CudaDigestWorkspace(count);
  ASSERT_TRUE(size.ok()) << size.status();
  const GpuMemory workspace(static_cast<size_t>(size->count()));
  const GpuStream stream;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int repetition = 0; repetition < 2; ++repetition) {  // What the first left must not matter.
    const absl::Status status = CudaDigests(buffers.As<DigestBuffer>(), count, digests.As<Digest>(),
                                            workspace.As<>(), *size, stream.get());
    ASSERT_TRUE(status.ok()) << status;
    stream.Wait();
    const std::vector<Digest> actual = digests.Read<Digest>();
    for (size_t i = 0; i < places.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i])
          << "buffer " << i << " of " << places[i].bytes << " bytes at " << places[i].offset;
    }
  }
}

TEST(CudaDigestTest, IsTheHostsAtEverySizeAndAlignment) {
  EBB_SKIP_WITHOUT_GPU();
  std::vector<Place> places;
  for (const int64_t bytes :
       {0,    1,    2,    7,    8,     9,     15,    16,    17,     511,   512,
        2047, 2048, 2049, 4096, 65535, 65536, 65537, 67584, 131072, 150001}) {
    for (int64_t offset = 0; offset < 17; ++offset) places.push_back({offset, bytes});
  }
  ExpectSameDigests(RandomWords(1 << 16), places);
}

TEST(CudaDigestTest, IsTheHostsForThousandsOfBuffers) {
  EBB_SKIP_WITHOUT_GPU();
  std::mt19937 random(2);
  const std::vector<uint32_t> words = RandomWords(1 << 20);
  const auto bytes = static_cast<int64_t>(words.size() * sizeof(words[0]));
  std::vector<Place> places;
  for (int i = 0; i < 20000; ++i) {
    const int64_t size = random() % (i % 100 == 0 ? 1 << 18 : 1 << 12);
    const int64_t offset = random() % (bytes - size);
    places.push_back({i % 4 == 0 ? offset : offset / 16 * 16, size});
  }
  ExpectSameDigests(words, places);
}

TEST(CudaDigestTest, IsTheHostsForOneLargeBuffer) {
  EBB_SKIP_WITHOUT_GPU();
  const std::vector<uint32_t> words = RandomWords((64 << 20) / 4 + 5);
  ExpectSameDigests(words, {{0, static_cast<int64_t>(words.size() * 4)}});
}

TEST(CudaDigestTest, NothingToDoNeedsNoGpu) {
  ASSERT_TRUE(CudaDigestWorkspace(0).ok());
  EXPECT_EQ(*CudaDigestWorkspace(0), Bytes(0));
  EXPECT_TRUE(CudaDigests(nullptr, 0, nullptr, nullptr, Bytes(0), nullptr).ok());
}

TEST(CudaDigestTest, BadCountsAreErrors) {
  for (const int64_t count : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CudaDigestWorkspace(count).status())) << count;
  }
}

TEST(CudaDigestTest, BadArgumentsAreErrors) {
  EBB_SKIP_WITHOUT_GPU();
  const GpuMemory buffers(std::vector<DigestBuffer>(3));
  const GpuMemory digests(3 * sizeof(Digest));
  const Bytes size = *CudaDigestWorkspace(3);
  const GpuMemory workspace(static_cast<size_t>(size.count()) + 1);
  const auto digest = [&](DigestBuffer* from, Digest* to, char* with, Bytes with_size) {
    return std::string(CudaDigests(from, 3, to, with, with_size, nullptr).message());
  };
  auto* const from = buffers.As<DigestBuffer>();
  auto* const to = digests.As<Digest>();
  auto* const with = workspace.As<char>();
  EXPECT_EQ(digest(from, to, with, size), "");
  EXPECT_THAT(digest(nullptr, to, with, size), HasSubstr("no buffers"));
  EXPECT_THAT(digest(from, nullptr, with, size), HasSubstr("no place"));
  EXPECT_THAT(digest(from, to, nullptr, size), HasSubstr("not a multiple of 256"));
  EXPECT_THAT(digest(from, to, with + 1, size), HasSubstr("not a multiple of 256"));
  EXPECT_THAT(digest(from, to, with, size - Bytes(1)), HasSubstr("needs"));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(CudaDigestTest, WithoutAGpuTheErrorIsCudas) {
  const std::string why = WhyNoGpu();
  if (why.empty()) GTEST_SKIP() << "there is a GPU";
  const absl::Status status = CudaDigestWorkspace(3).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cudaError"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

}  // namespace
}  // namespace ebbtide
