// SPDX-License-Identifier: Apache-2.0

#include "allocator/small_cache.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocator/simulated_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

// A cache over a heap of its own, as an arena has it; the test is the owner and needs no lock.
class SmallCacheTest : public testing::Test {
 protected:
  SmallCacheTest() { EXPECT_TRUE(heap_.AddSegment(1 << 20, true).ok()); }

  Block* AddChunk(int size_class) {
    Block* chunk = heap_.Carve(SmallCache::kChunkSize, SmallCache::kChunkSize);
    EXPECT_TRUE(heap_.CommitBlock(chunk).ok());
    cache_.AddChunk(size_class, chunk, Kind::kSmall);
    return chunk;
  }
  SmallCache::Slab* SlabOf(uintptr_t address) { return SmallCache::SlabOf(pages_.Get(address)); }
  void Free(uintptr_t address) {
    uintptr_t overflow[SmallCache::kMaxBatch];
    const size_t count = cache_.Push(SlabOf(address), address, overflow);
    cache_.ReturnObjects(overflow, count, &empty_);
  }
  std::vector<Block*> Flush() {
    std::vector<Block*> empty;
    cache_.Flush(&empty);
    return empty;
  }

  SimulatedDevice device_{{.granularity = 64_KiB}};
  Ledger ledger_{&device_, Bytes::Max(), nullptr};
  HeapOwner owner_{kDefaultStream};
  Heap heap_{&ledger_, &owner_};
  PageMap pages_;
  UsageMeter meters_[kKinds];
  SmallCache cache_{&pages_, &ledger_.live, meters_};
  std::vector<Block*> empty_;
};

using SmallCacheDeathTest = SmallCacheTest;

TEST_F(SmallCacheTest, ClassesHoldWhatTheyAreForAndKeepAnyAlignment) {
  for (size_t size = 1; size <= SmallCache::kMaxSize; ++size) {
    const size_t rounded = SmallCache::ClassSize(SmallCache::ClassOf(size));
    EXPECT_GE(rounded, size);
    EXPECT_LE(rounded, std::max<size_t>((size + 63) / 64 * 64, size * 5 / 4)) << size;
    for (size_t alignment = 64; alignment <= SmallCache::kMaxSize; alignment *= 2) {
      const size_t aligned = SmallCache::ClassSize(SmallCache::ClassOf(size, alignment));
      EXPECT_GE(aligned, size);
      EXPECT_EQ(aligned % alignment, 0u);
    }
  }
}

TEST_F(SmallCacheTest, AnObjectOfAnEmptyCacheComesFromASlab) {
  EXPECT_EQ(cache_.Pop(0, 10), 0u);
  EXPECT_EQ(cache_.TakeFromSlabs(0, 10), 0u) << "there is no slab";
  Block* chunk = AddChunk(0);
  const uintptr_t object = cache_.TakeFromSlabs(0, 10);
  EXPECT_EQ(object, chunk->begin) << "the lowest first";
  EXPECT_TRUE(SmallCache::IsLive(SlabOf(object), object));
  EXPECT_EQ(SmallCache::AskedSize(SlabOf(object), object), 10u);
  EXPECT_EQ(SmallCache::StartOf(SlabOf(object), object + 63), object);
  EXPECT_EQ(SmallCache::ChunkOf(SlabOf(object)), chunk);
  Free(object);
  EXPECT_FALSE(SmallCache::IsLive(SlabOf(object), object));
  EXPECT_EQ(cache_.Pop(0, 20), object) << "what was freed last is handed out first";
  Free(object);
}

TEST_F(SmallCacheTest, AChunkGoesBackWhenAllOfItsObjectsAre) {
  Block* chunk = AddChunk(5);
  std::vector<uintptr_t> objects;
  for (uintptr_t object; (object = cache_.TakeFromSlabs(5, 300)) != 0;) objects.push_back(object);
  EXPECT_EQ(objects.size(), SmallCache::kChunkSize / SmallCache::ClassSize(5));
  const uintptr_t kept = objects.back();
  objects.pop_back();
  for (uintptr_t object : objects) Free(object);
  EXPECT_THAT(Flush(), testing::IsEmpty()) << "a live object holds its chunk";
  Free(kept);
  EXPECT_THAT(Flush(), testing::ElementsAre(chunk));
  EXPECT_EQ(SlabOf(chunk->begin), nullptr);
}

// Hazard: while a chunk is obtained, its class may be filled otherwise. Then none of its objects is
// ever handed out, and none comes back to say that it is empty.
TEST_F(SmallCacheTest, SlabsThatNeverHandedOutAnObjectAreGivenBack) {
  Block* first = AddChunk(3);
  Block* second = AddChunk(3);
  Block* of_another_class = AddChunk(7);
  EXPECT_THAT(Flush(), testing::UnorderedElementsAre(first, second, of_another_class));
  EXPECT_EQ(cache_.TakeFromSlabs(3, 100), 0u);
  AddChunk(3);
  EXPECT_NE(cache_.TakeFromSlabs(3, 100), 0u) << "the slab's place is not used again";
}

TEST_F(SmallCacheTest, NumbersAreOfTheMomentWhateverTheThread) {
  AddChunk(0);
  std::vector<uintptr_t> objects;
  std::thread([&] {
    for (int i = 0; i < 10; ++i) objects.push_back(cache_.TakeFromSlabs(0, 10));
  }).join();
  for (int i = 0; i < 4; ++i) Free(objects[i]);
  const ObjectCounts counts = cache_.Count()[static_cast<int>(Kind::kSmall)];
  EXPECT_EQ(counts.allocations, 10);
  EXPECT_EQ(counts.frees, 4);
  EXPECT_EQ(counts.bytes_in - counts.bytes_out, 6 * 64);
  EXPECT_EQ(counts.asked_in, 100);
  EXPECT_EQ(counts.asked_out, 40);
  EXPECT_EQ(cache_.Count()[static_cast<int>(Kind::kLarge)].allocations, 0);
}

TEST_F(SmallCacheDeathTest, MisuseIsReportedWithWhatIsKnown) {
  AddChunk(1);
  const uintptr_t object = cache_.TakeFromSlabs(1, 100);
  EXPECT_DEATH(Free(object + 64), "inside a block, not at its start; blocks here have 128 bytes");
  EXPECT_DEATH(Free(object + 128), "freed twice, or never allocated; blocks here have 128 bytes");
  Free(object);
  EXPECT_DEATH(Free(object), "free of 0x[0-9a-f]+: freed twice");
}

}  // namespace
}  // namespace ebbtide
