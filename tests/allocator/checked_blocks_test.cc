// SPDX-License-Identifier: Apache-2.0

#include "allocator/checked_blocks.h"

#include <cstring>
#include <random>
#include <thread>

#include "allocator/caching_allocator.h"
#include "allocator/call_stack.h"
#include "allocator/host_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

// The layer around our own allocator, as its users plug it in.
class CheckedBlocksTest : public testing::Test {
 protected:
  CheckedBlocksTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  void* Get(Bytes size) {
    return checked_.OnAllocate(allocator_.Allocate(checked_.Wrap(size)).value(), size);
  }
  void Put(void* payload, std::optional<Bytes> size = std::nullopt) {
    GiveBack(checked_.OnFree(payload, size));
  }
  void GiveBack(const std::vector<void*>& blocks) {
    for (void* block : blocks) allocator_.Free(block);
  }
  unsigned char* GetFilled(Bytes size) {
    auto* block = static_cast<unsigned char*>(Get(size));
    memset(block, 1, static_cast<size_t>(size.count()));
    return block;
  }

  HostMemory memory_;
  CachingAllocator allocator_{&memory_};
  CheckedBlocks checked_{{.red_zone = 64_B, .quarantine = 4_KiB}};
};

using CheckedBlocksDeathTest = CheckedBlocksTest;

TEST_F(CheckedBlocksTest, NothingAskedNothingGiven) {
  EXPECT_EQ(checked_.Wrap(0_B), 0_B);
  EXPECT_EQ(checked_.Wrap(Bytes::Max() - 1_B), Bytes::Max());
  EXPECT_EQ(Get(0_B), nullptr);
  EXPECT_TRUE(checked_.OnFree(nullptr).empty());
}

TEST_F(CheckedBlocksTest, BlocksAreAlignedAndKnowTheirSize) {
  std::vector<void*> blocks;
  for (int64_t size : {1, 7, 64, 100, 4096, 5000, 1 << 20}) {
    blocks.push_back(GetFilled(Bytes(size)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 64, 0u);
    EXPECT_EQ(checked_.SizeOf(blocks.back()), Bytes(size));
    EXPECT_TRUE(checked_.Owns(blocks.back()));
  }
  EXPECT_EQ(checked_.live_blocks(), 7);
  checked_.CheckAll();
  for (void* block : blocks) {
    Put(block);
    EXPECT_FALSE(checked_.Owns(block));
  }
  GiveBack(checked_.Drain(Bytes::Max()));
  EXPECT_EQ(checked_.live_blocks(), 0);
  EXPECT_EQ(allocator_.stats().live_blocks, 0);
}

TEST_F(CheckedBlocksTest, FreedBlocksWaitUntilTheQuarantineIsFull) {
  void* first = GetFilled(1000_B);
  void* second = GetFilled(1000_B);
  EXPECT_TRUE(checked_.OnFree(first).empty());
  EXPECT_TRUE(checked_.OnFree(second).empty());
  EXPECT_EQ(checked_.quarantined(), 1128_B * 2);
  void* third = GetFilled(2000_B);
  EXPECT_NE(third, first);
  const std::vector<void*> out = checked_.OnFree(third);
  EXPECT_THAT(out, testing::ElementsAre(static_cast<char*>(first) - 64));
  EXPECT_EQ(checked_.quarantined(), 1128_B + 2128_B);
  GiveBack(out);
  const std::vector<void*> drained = checked_.Drain(1_B);
  EXPECT_THAT(drained, testing::ElementsAre(static_cast<char*>(second) - 64));
  GiveBack(drained);
}

TEST_F(CheckedBlocksTest, ABlockLargerThanTheQuarantineDoesNotWait) {
  void* small = GetFilled(1000_B);
  void* large = GetFilled(100_KiB);
  EXPECT_TRUE(checked_.OnFree(small).empty());
  const std::vector<void*> out = checked_.OnFree(large);
  EXPECT_THAT(out, testing::ElementsAre(static_cast<char*>(large) - 64));
  EXPECT_EQ(checked_.quarantined(), 1128_B);
  GiveBack(out);
}

TEST_F(CheckedBlocksTest, RandomLoadsOfSeveralThreadsPass) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<void*, Bytes>> live;
      for (int i = 0; i < 2000; ++i) {
        if (live.size() < 20 || random() % 2 == 0) {
          const Bytes size(static_cast<int64_t>(1 + random() % 3000));
          live.emplace_back(GetFilled(size), size);
        } else {
          std::swap(live[random() % live.size()], live.back());
          Put(live.back().first, live.back().second);
          live.pop_back();
        }
      }
      for (const auto& [block, size] : live) Put(block, size);
    });
  }
  for (int i = 0; i < 20; ++i) checked_.CheckAll();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(checked_.live_blocks(), 0);
  EXPECT_LE(checked_.quarantined(), 4_KiB);
}

TEST_F(CheckedBlocksDeathTest, Overrun) {
  EXPECT_DEATH(
      {
        unsigned char* block = GetFilled(100_B);
        block[100] = 'A';
        block[102] = 'C';
        Put(block);
      },
      "memory fault: overrun: 2 bytes were written past a block, from 0 after its end on: 41 bd 43"
      "(.|\n)*100 bytes, allocation number 1, being freed(.|\n)*allocated by thread [0-9]+:\n"
      "    #0 0x(.|\n)*freed by thread [0-9]+:\n    #0 0x(.|\n)*noticed:");
}

TEST_F(CheckedBlocksDeathTest, Underrun) {
  EXPECT_DEATH(
      {
        unsigned char* block = GetFilled(100_B);
        block[-8] = 7;
        Put(block);
      },
      "underrun: 1 byte was written before a block, from 8 before it on: 07\n");
}

TEST_F(CheckedBlocksDeathTest, OverrunIsFoundByALookAtEverything) {
  EXPECT_DEATH(
      {
        GetFilled(5000_B)[5000] = 0;
        checked_.CheckAll();
      },
      "overrun: 1 byte was written(.|\n)*5000 bytes, allocation number 1, live");
}

TEST_F(CheckedBlocksDeathTest, UseAfterFreeIsFoundWhenTheBlockLeaves) {
  EXPECT_DEATH(
      {
        unsigned char* block = GetFilled(100_B);
        Put(block);
        block[50] = 0;
        GiveBack(checked_.Drain(Bytes::Max()));
      },
      "use after free: 1 byte was written to a freed block, from byte 50 on: 00\n"
      "(.|\n)*allocated by(.|\n)*freed by");
}

TEST_F(CheckedBlocksDeathTest, UseAfterFreeIsFoundByALookAtEverything) {
  EXPECT_DEATH(
      {
        unsigned char* block = GetFilled(100_B);
        Put(block);
        memset(block, 9, 100);
        checked_.CheckAll();
      },
      "use after free: 100 bytes were written to a freed block, from byte 0 on: 09( 09){15} ...");
}

TEST_F(CheckedBlocksDeathTest, DoubleFree) {
  EXPECT_DEATH(
      {
        void* block = GetFilled(100_B);
        Put(block);
        Put(block);
      },
      "double free: free of a block(.|\n)*number 1, freed\n(.|\n)*freed by(.|\n)*noticed:");
}

TEST_F(CheckedBlocksDeathTest, DoubleFreeOfABlockThatIsLongGone) {
  EXPECT_DEATH(
      {
        void* block = GetFilled(100_B);
        Put(block);
        GiveBack(checked_.Drain(Bytes::Max()));
        Put(block);
      },
      "double free: (.|\n)*number 1, freed, and its memory given back\n(.|\n)*freed by");
}

TEST_F(CheckedBlocksDeathTest, WrongSize) {
  EXPECT_DEATH(Put(GetFilled(100_B), 99_B),
               "wrong size: free of 99 bytes for a block of another size\n.*: 100 bytes, ");
}

TEST_F(CheckedBlocksDeathTest, ForeignPointers) {
  int on_stack = 0;
  EXPECT_DEATH(Put(&on_stack), "foreign pointer: free of 0x[0-9a-f]+, which was not allocated");
  unsigned char* block = GetFilled(100_B);
  EXPECT_DEATH(Put(block + 5), "free of 0x[0-9a-f]+, 5 bytes from the begin of a block\n.*100 byt");
  EXPECT_DEATH(Put(block - 64), "-64 bytes from the begin of a block\n");
  EXPECT_DEATH((void)checked_.SizeOf(block + 1), "foreign pointer: size of");
  Put(block);
  EXPECT_DEATH((void)checked_.SizeOf(block), "use after free: size of a block");
}

TEST_F(CheckedBlocksDeathTest, MemoryHandedOutTwice) {
  EXPECT_DEATH(
      {
        auto* block = static_cast<unsigned char*>(allocator_.Allocate(1000_B).value());
        checked_.OnAllocate(block, 500_B);
        checked_.OnAllocate(block + 600, 100_B);
      },
      "handed out twice: the allocator gave 228 bytes at 0x[0-9a-f]+, which are in use");
  EXPECT_DEATH(
      {
        auto* block = static_cast<unsigned char*>(allocator_.Allocate(1000_B).value());
        checked_.OnFree(checked_.OnAllocate(block + 256, 500_B));
        checked_.OnAllocate(block, 200_B);  // over memory that still waits
      },
      "handed out twice(.|\n)*500 bytes, allocation number 1, freed\n");
}

TEST(CallStackTest, NamesExportedFunctions) {
  CallStack::Prepare();
  const CallStack stack = CallStack::Capture(0);
  EXPECT_FALSE(stack.empty());
  EXPECT_TRUE(CallStack().empty());
  const std::string text = stack.Format("> ");
  EXPECT_THAT(text, testing::StartsWith("> #0 0x"));
  EXPECT_THAT(text, testing::HasSubstr("+0x"));
  EXPECT_LT(CallStack::Capture(1).Format("").size(), stack.Format("").size());
}

}  // namespace
}  // namespace ebbtide
