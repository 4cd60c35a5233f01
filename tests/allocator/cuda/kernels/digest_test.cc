// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/digest.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "allocator/cuda/kernels/digest_core.h"
#include "allocator/cuda/kernels/digest_tiles.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using Content = std::vector<unsigned char>;
using Key = std::pair<uint64_t, uint64_t>;  // a digest that can be put into a set

// Around the borders of words, units, chunks and tiles.
constexpr int64_t kSizes[] = {0,    1,    2,    3,     7,     8,     9,     15,     16,    17,
                              63,   511,  512,  513,   2047,  2048,  2049,  2056,   4095,  4096,
                              4097, 6151, 8192, 65535, 65536, 65537, 67584, 131072, 150001};

Content RandomContent(int64_t bytes, uint32_t seed = 1) {
  std::mt19937 random(seed);
  Content content(static_cast<size_t>(bytes));
  for (unsigned char& byte : content) byte = static_cast<unsigned char>(random());
  return content;
}

Digest DigestOfContent(const Content& content) {
  return HostDigest({content.data(), static_cast<int64_t>(content.size())});
}

Key KeyOf(const Content& content) {
  const Digest digest = DigestOfContent(content);
  return {digest.low, digest.high};
}

// The digest by its definition, without a vector instruction, a chunk at a time from the back.
Digest ByDefinition(const Content& content) {
  constexpr auto kKeys = digest_core::MakeKeys();
  const int64_t bytes = static_cast<int64_t>(content.size());
  digest_core::Sums sums;
  for (int64_t chunk = (bytes - 1) / digest_core::kChunkBytes; bytes > 0 && chunk >= 0; --chunk) {
    digest_core::Sums chunk_sums;
    for (int j = 0; j < digest_core::kChunkWords; ++j) {
      const int64_t offset = chunk * digest_core::kChunkBytes + j * 8;
      if (offset >= bytes) break;
      uint64_t word = 0;
      for (int64_t i = 0; i < 8 && offset + i < bytes; ++i) {
        word += static_cast<uint64_t>(content[offset + i]) << (8 * i);
      }
      const uint64_t low = word & 0xffffffff, high = word >> 32;
      for (int pass = 0; pass < 2; ++pass) {
        const uint64_t key = kKeys.words[j + pass];
        const uint64_t product =
            ((low + (key & 0xffffffff)) & 0xffffffff) * ((high + (key >> 32)) & 0xffffffff);
        (pass == 0 ? chunk_sums.first : chunk_sums.second) += product;
      }
    }
    sums += digest_core::MixChunk(chunk_sums, chunk);
  }
  return digest_core::Finish(sums, bytes);
}

TEST(DigestTest, IsWhatItsDefinitionSays) {
  for (const int64_t bytes : kSizes) {
    const Content content = RandomContent(bytes);
    EXPECT_EQ(DigestOfContent(content), ByDefinition(content)) << bytes;
  }
}

TEST(DigestTest, IsWhatAnotherProgramComputes) {
  // From a program of its own, in another language.
  EXPECT_EQ(DigestOfContent({}), (Digest{0x2821e87853bd17a0, 0xdf02530490027738}));
  Content counting(5000);
  for (size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(DigestOfContent(counting), (Digest{0xe59d5eb2bbca3091, 0xe9dc9daabe8dfea5}));
}

TEST(DigestTest, IsTheSameAtEveryAlignment) {
  for (const int64_t bytes : {1, 8, 13, 2048, 5003, 70001}) {
    const Content content = RandomContent(bytes);
    Content memory(static_cast<size_t>(bytes) + 64, 0xa5);
    for (size_t offset = 0; offset < 33; ++offset) {
      std::copy(content.begin(), content.end(), memory.begin() + offset);
      EXPECT_EQ(HostDigest({memory.data() + offset, bytes}), DigestOfContent(content)) << offset;
    }
  }
}

TEST(DigestTest, TellsEveryFlippedBitApart) {
  for (const int64_t bytes : {1, 5, 8, 24, 2048, 2061, 4096}) {
    Content content = RandomContent(bytes);
    std::set<Key> seen = {KeyOf(content)};
    for (int64_t bit = 0; bit < 8 * bytes; ++bit) {
      content[bit / 8] ^= 1 << bit % 8;
      EXPECT_TRUE(seen.insert(KeyOf(content)).second) << bytes << " bytes, bit " << bit;
      content[bit / 8] ^= 1 << bit % 8;
    }
  }
}

// The only words for which one of the two sums is blind to the other half: those that are minus a
// key. The other sum has to see them.
TEST(DigestTest, TellsFlippedBitsApartWhereOneSumIsBlind) {
  constexpr auto kKeys = digest_core::MakeKeys();
  Content content = RandomContent(digest_core::kChunkBytes);
  for (int j = 0; j < digest_core::kChunkWords; ++j) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int half = 0; half < 2; ++half) {
        const uint32_t blind = -static_cast<uint32_t>(kKeys.words[j + pass] >> (32 * half));
        std::memcpy(&content[8 * j + 4 * half], &blind, sizeof(blind));
        const Digest before = DigestOfContent(content);
        unsigned char& other = content[8 * j + 4 * (1 - half) + 3];
        other ^= 0x80;
        EXPECT_NE(DigestOfContent(content), before) << j;
        other ^= 0x80;
      }
    }
  }
}

TEST(DigestTest, TellsZeroExtensionApart) {
  for (const bool zeros : {false, true}) {
    Content content = zeros ? Content() : RandomContent(2040);
    std::set<Key> seen;
    for (int more = 0; more < 4200; ++more) {
      EXPECT_TRUE(seen.insert(KeyOf(content)).second) << more;
      content.push_back(0);
    }
  }
}

// Exchanges of equal pieces at every distance that has a meaning inside: halves of a word, words,
// units, lanes, chunks and tiles.
TEST(DigestTest, TellsExchangedPiecesApart) {
  Content content = RandomContent(4 * digest_core::kTileBytes);
  const Digest before = DigestOfContent(content);
  std::mt19937 random(7);
  for (const int64_t piece : {4, 8, 16, 512, 2048, 65536}) {
    const int64_t pieces = static_cast<int64_t>(content.size()) / piece;
    for (int round = 0; round < 100; ++round) {
      const int64_t a = random() % pieces;
      const int64_t b = round % 4 == 0 ? (a + 1) % pieces : random() % pieces;
      if (a == b) continue;
      const auto exchange = [&] {
        std::swap_ranges(content.begin() + a * piece, content.begin() + (a + 1) * piece,
                         content.begin() + b * piece);
      };
      exchange();
      EXPECT_NE(DigestOfContent(content), before) << piece << ": " << a << ", " << b;
      exchange();
    }
  }
  EXPECT_EQ(DigestOfContent(content), before);
}

// What rebuilt floats differ by: signs, last bits, infinities, in many places at once.
TEST(DigestTest, TellsManySmallChangesApart) {
  std::mt19937 random(3);
  std::vector<float> floats(3000);
  for (float& x : floats) x = static_cast<float>(random()) / 1e9F - 2;
  const int64_t bytes = static_cast<int64_t>(floats.size() * sizeof(float));
  std::set<Key> seen;
  const auto add = [&] {
    const Digest digest = HostDigest({floats.data(), bytes});
    return seen.insert({digest.low, digest.high}).second;
  };
  EXPECT_TRUE(add());
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> before = floats;
    for (uint32_t i = 0; i < 2 + random() % 20; ++i) {
      uint32_t bits;
      float& x = floats[random() % floats.size()];
      std::memcpy(&bits, &x, sizeof(bits));
      bits ^= round % 2 == 0 ? 0x80000000U : 1U;
      std::memcpy(&x, &bits, sizeof(bits));
    }
    if (floats == before) continue;  // Two changes of one float may undo each other.
    EXPECT_TRUE(add()) << round;
    floats = before;
  }
}

// All 2^64 values of both sums should be in use: each bit of the digest is set half of the time.
TEST(DigestTest, HasNoBitThatIsMostlyOne) {
  int ones[128] = {};
  constexpr int kContents = 4000;
  for (int i = 0; i < kContents; ++i) {
    const Digest digest = HostDigest({&i, sizeof(i)});
    for (int bit = 0; bit < 64; ++bit) {
      ones[bit] += digest.low >> bit & 1;
      ones[64 + bit] += digest.high >> bit & 1;
    }
  }
  // Five standard deviations, sqrt(4000) / 2 = 31.6 each.
  for (const int count : ones) EXPECT_NEAR(count, kContents / 2, 158);
}

TEST(DigestTest, OfManyBuffersIsThatOfEach) {
  std::vector<Content> contents;
  std::vector<DigestBuffer> buffers;
  for (const int64_t bytes : kSizes) contents.push_back(RandomContent(bytes));
  for (const Content& content : contents) {
    buffers.push_back({content.data(), static_cast<int64_t>(content.size())});
  }
  std::vector<Digest> digests(buffers.size());
  HostDigests(buffers.data(), static_cast<int64_t>(buffers.size()), digests.data());
  for (size_t i = 0; i < contents.size(); ++i) EXPECT_EQ(digests[i], DigestOfContent(contents[i]));
  HostDigests(nullptr, 0, nullptr);
}

// What the GPU's kernel does, its threads one after the other and the tiles from the back; all but
// its reductions is the same code.
std::vector<Digest> DigestsByTiles(const std::vector<DigestBuffer>& buffers) {
  constexpr auto kKeys = digest_core::MakeKeys();
  const int64_t count = static_cast<int64_t>(buffers.size());
  std::vector<int64_t> starts = {0};
  for (const DigestBuffer& buffer : buffers) {
    starts.push_back(starts.back() + digest_core::TileCount(buffer.bytes));
  }
  std::vector<digest_core::Sums> sums(buffers.size());
  for (int64_t tile = starts.back() - 1; tile >= 0; --tile) {
    const int64_t owner = digest_core::OwnerOfTile(starts.data(), count, tile);
    const auto chunks = digest_core::ChunksOfTile(buffers[owner].bytes, tile - starts[owner]);
    EXPECT_LT(chunks.begin, chunks.end);
    for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      digest_core::Sums all;
      for (int lane = digest_core::kLanes - 1; lane >= 0; --lane) {
        const auto lane_keys = digest_core::KeysOfLane(kKeys, lane);
        all += digest_core::ChunkSumsOfLane(buffers[owner], chunk, lane, lane_keys, kKeys);
      }
      sums[owner] += digest_core::MixChunk(all, chunk);
    }
  }
  std::vector<Digest> digests;
  for (size_t i = 0; i < buffers.size(); ++i) {
    digests.push_back(digest_core::Finish(sums[i], buffers[i].bytes));
  }
  return digests;
}

TEST(DigestTest, IsTheSameInTheGpusOrder) {
  const Content memory = RandomContent(400000);
  for (const int offset : {0, 8, 16, 1, 13}) {
    std::vector<DigestBuffer> buffers;
    for (const int64_t bytes : kSizes) {
      buffers.push_back({memory.data() + offset, bytes});
      buffers.push_back({nullptr, 0});
    }
    std::vector<Digest> expected(buffers.size());
    HostDigests(buffers.data(), static_cast<int64_t>(buffers.size()), expected.data());
    EXPECT_EQ(DigestsByTiles(buffers), expected) << offset;
  }
}

TEST(DigestTest, FindsTheOwnerOfEveryTile) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int64_t count = 1 + random() % 20;
    std::vector<int64_t> starts = {0};
    std::vector<int64_t> owners;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t tiles = random() % 3 == 0 ? 0 : random() % 5;
      owners.insert(owners.end(), static_cast<size_t>(tiles), i);
      starts.push_back(starts.back() + tiles);
    }
    for (size_t tile = 0; tile < owners.size(); ++tile) {
      EXPECT_EQ(digest_core::OwnerOfTile(starts.data(), count, static_cast<int64_t>(tile)),
                owners[tile]);
    }
  }
}

}  // namespace
}  // namespace ebbtide
