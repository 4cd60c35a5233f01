// SPDX-License-Identifier: Apache-2.0
//
// The second half of allocator_conformance.h: long random loads against a model, threads, pressure
// from several threads, fork. Every load is seeded; the seed is in the text of the failing check.
// Instantiate it beside the first half.
//
// Threads: the tests start their own and join them. Ownership: the fixture owns device and
// allocator.

#ifndef EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_STRESS_CONFORMANCE_H_
#define EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_STRESS_CONFORMANCE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "tests/allocator/allocator_conformance.h"

namespace ebbtide {

// Sizes as training programs ask for them: many tiny ones, some large, a few huge, often repeated.
class SizeSource {
 public:
  explicit SizeSource(uint64_t seed) : random_(seed) {}
  Bytes Next(int64_t largest) {
    const double exponent = std::uniform_real_distribution<>(0, 1)(random_);
    const auto size = static_cast<int64_t>(std::pow(static_cast<double>(largest), exponent));
    if (size % 3 == 0 && !seen_.empty()) return seen_[random_() % seen_.size()];
    if (seen_.size() < 64) seen_.push_back(Bytes(size));
    return Bytes(std::max<int64_t>(size, 1));
  }
  uint64_t Draw() { return random_(); }

 private:
  std::mt19937_64 random_;
  std::vector<Bytes> seen_;
};

// Fills a block so that any other block's bytes, or its own at another place, would be noticed.
class Pattern {
 public:
  static void Write(void* block, int64_t size, uint64_t tag) {
    ForEach(block, size, tag, [](uint64_t* at, uint64_t value) {
      *at = value;
      return true;
    });
  }
  static bool Check(void* block, int64_t size, uint64_t tag) {
    return ForEach(block, size, tag,
                   [](const uint64_t* at, uint64_t value) { return *at == value; });
  }

 private:
  template <typename Action>
  static bool ForEach(void* block, int64_t size, uint64_t tag, const Action& action) {
    auto* words = static_cast<uint64_t*>(block);
    const int64_t count = size / 8;
    const int64_t step = count > 4096 ? 61 : 1;  // every few cache lines of large blocks
    for (int64_t i = 0; i < count; i += step) {
      if (!action(words + i, tag * 0x9e3779b97f4a7c15u + i)) return false;
    }
    return count == 0 || action(words + count - 1, tag * 0x9e3779b97f4a7c15u + count - 1);
  }
};

class AllocatorStressTest : public AllocatorFixture {
 protected:
  struct Live {
    void* block;
    int64_t size;
    uint64_t tag;
  };

  void Fill(const Live& live) {
    if (device_->is_host_accessible()) Pattern::Write(live.block, live.size, live.tag);
  }
  bool Intact(const Live& live) {
    return !device_->is_host_accessible() || Pattern::Check(live.block, live.size, live.tag);
  }

  // Random requests and frees; what fails must fail for want of budget. Returns the failures.
  int RandomLoad(uint64_t seed, int steps, int64_t largest, int64_t keep, bool check) {
    SizeSource source(seed);
    std::vector<Live> live;
    int64_t bytes = 0;
    int failures = 0;
    for (int step = 0; step < steps; ++step) {
      const bool grow = bytes < keep && source.Draw() % 8 != 0;
      if (grow || live.empty()) {
        const Bytes size = source.Next(largest);
        absl::StatusOr<void*> block = allocator_->Allocate(size);
        if (block.ok()) {
          live.push_back({*block, allocator_->SizeOf(*block).count(), source.Draw()});
          bytes += live.back().size;
          Fill(live.back());
          continue;
        }
        ++failures;
        if (live.empty()) continue;
      }
      std::swap(live[source.Draw() % live.size()], live.back());
      EXPECT_TRUE(Intact(live.back())) << "seed " << seed << " step " << step;
      allocator_->Free(live.back().block);
      bytes -= live.back().size;
      live.pop_back();
      if (check && step % 64 == 0) {
        allocator_->CheckInvariants();
        ExpectAddsUp(allocator_->stats());
        EXPECT_EQ(allocator_->stats().live, Bytes(bytes)) << "seed " << seed << " step " << step;
      }
    }
    for (const Live& left : live) {
      EXPECT_TRUE(Intact(left)) << "seed " << seed;
      allocator_->Free(left.block);
    }
    return failures;
  }
};

TEST_P(AllocatorStressTest, RandomLoadsKeepContentsAndNumbers) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Make(seed % 2 == 0 ? Bytes::Max() : 96_MiB);
    RandomLoad(seed, 4000, 8 << 20, 64 << 20, /*check=*/true);
    EXPECT_EQ(allocator_->stats().live, 0_B);
    allocator_->ReleaseCached(Bytes::Max());
    EXPECT_EQ(allocator_->stats().held, 0_B);
    EXPECT_EQ(allocator_->stats().reserved, 0_B);
  }
}

TEST_P(AllocatorStressTest, ATightBudgetIsNeverExceeded) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Make(24_MiB);
    EXPECT_GT(RandomLoad(seed, 4000, 6 << 20, 64 << 20, /*check=*/true), 0);
    EXPECT_LE(allocator_->stats().peak_held, 24_MiB);
    allocator_->Free(Get(24_MiB));
  }
}

TEST_P(AllocatorStressTest, ThreadsShareOneAllocator) {
  Make(128_MiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([this, t] { RandomLoad(100 + t, 3000, 1 << 20, 12 << 20, false); });
  }
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) {
      ExpectAddsUp(allocator_->stats());
      allocator_->ReleaseCached(1_MiB);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  observer.join();
  EXPECT_EQ(allocator_->stats().live, 0_B);
  EXPECT_EQ(allocator_->stats().live_blocks, 0);
}

TEST_P(AllocatorStressTest, BlocksMayBeFreedByOtherThreads) {
  std::mutex mutex;
  std::vector<Live> shared;
  const auto work = [&](uint64_t seed) {
    SizeSource source(seed);
    for (int i = 0; i < 4000; ++i) {
      const Bytes size = source.Next(64 << 10);
      Live mine{Get(size), size.count(), source.Draw()};
      Fill(mine);
      std::unique_lock<std::mutex> lock(mutex);
      shared.push_back(mine);
      if (shared.size() < 100) continue;
      std::swap(shared[source.Draw() % shared.size()], shared.back());
      const Live other = shared.back();
      shared.pop_back();
      lock.unlock();
      EXPECT_TRUE(Intact(other));
      allocator_->Free(other.block);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work, 7 + t);
  for (std::thread& thread : threads) thread.join();
  for (const Live& live : shared) allocator_->Free(live.block);
  EXPECT_EQ(allocator_->stats().live, 0_B);
}

// Each thread evicts blocks of a common pool when it is asked to, as the runtime does.
TEST_P(AllocatorStressTest, PressureFromSeveralThreads) {
  Make(48_MiB);
  std::mutex mutex;
  std::vector<void*> evictable;
  allocator_->SetPressureHandler([&](const MemoryPressure&) {
    void* victim = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (evictable.empty()) return false;
      victim = evictable.back();
      evictable.pop_back();
    }
    allocator_->Free(victim);
    return true;
  });
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      SizeSource source(50 + t);
      for (int i = 0; i < 1500; ++i) {
        absl::StatusOr<void*> block = allocator_->Allocate(source.Next(4 << 20));
        if (!block.ok()) continue;
        ++got;
        std::lock_guard<std::mutex> lock(mutex);
        evictable.insert(evictable.begin() + source.Draw() % (evictable.size() + 1), *block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(got, 5500);  // of 6,000: only a full budget of other threads' fresh blocks may fail one
  EXPECT_LE(allocator_->stats().peak_held, 48_MiB);
  EXPECT_GT(allocator_->stats().pressure_calls, 0);
  for (void* block : evictable) allocator_->Free(block);
}

// Some drivers are of no use in a child that was forked after they were initialised.
inline bool WorksInAForkedChild(DeviceMemory* device) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const absl::StatusOr<void*> range = device->Reserve(device->granularity());
    _exit(range.ok() && device->Unreserve(*range, device->granularity()).ok() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_P(AllocatorStressTest, AForkedChildCanGoOn) {
  if (!WorksInAForkedChild(device_.get())) GTEST_SKIP() << "the driver does not survive a fork";
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t seed = t; !stop; seed += 3) RandomLoad(seed, 200, 1 << 18, 1 << 20, false);
    });
  }
  void* before = Get(1_MiB);
  for (int i = 0; i < 20; ++i) {
    allocator_->LockForFork();
    const pid_t child = fork();
    allocator_->UnlockAfterFork();
    if (child == 0) {
      alarm(20);  // a lock that stayed taken ends the child, not the test run
      void* block = allocator_->Allocate(1_MiB).value();
      void* small = allocator_->Allocate(100_B).value();
      allocator_->Free(before);
      allocator_->Free(block);
      allocator_->Free(small);
      allocator_->CheckInvariants();
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  allocator_->Free(before);
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_ALLOCATOR_STRESS_CONFORMANCE_H_
