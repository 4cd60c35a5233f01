// SPDX-License-Identifier: Apache-2.0
#include "base/shared_mutex.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

// More than there are shards, so that some share one.
constexpr int kReaders = 20;

TEST(SharedMutexTest, ReadersSeeOnlyWholeWrites) {
  SharedMutex mutex;
  int64_t first = 0;
  int64_t second = 0;
  std::atomic<bool> done{false};
  std::atomic<int64_t> torn{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      while (!done.load()) {
        ReaderLock lock(&mutex);
        if (first != second) ++torn;
      }
    });
  }
  std::vector<std::thread> writers;
  constexpr int kWriters = 2;
  constexpr int kWrites = 500;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&] {
      for (int j = 0; j < kWrites; ++j) {
        WriterLock lock(&mutex);
        ++first;
        std::this_thread::yield();
        ++second;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0);
  EXPECT_EQ(first, kWriters * kWrites);
  EXPECT_EQ(second, kWriters * kWrites);
}

TEST(SharedMutexTest, ReadersDoNotExcludeEachOther) {
  SharedMutex mutex;
  ReaderLock lock(&mutex);
  std::thread([&] { ReaderLock other(&mutex); }).join();
}

TEST(SharedMutexTest, AWriterWaitsForAReader) {
  SharedMutex mutex;
  std::atomic<bool> written{false};
  std::thread writer;
  {
    ReaderLock lock(&mutex);
    writer = std::thread([&] {
      WriterLock write(&mutex);
      written.store(true);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(written.load());
  }
  writer.join();
  EXPECT_TRUE(written.load());
}

TEST(SharedMutexTest, AReaderWaitsForAWriter) {
  SharedMutex mutex;
  std::atomic<bool> read{false};
  mutex.Lock();
  std::thread reader([&] {
    ReaderLock lock(&mutex);
    read.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(read.load());
  mutex.Unlock();
  reader.join();
  EXPECT_TRUE(read.load());
}

// Hazard: a reader that the child does not have counts for ever, and the first writer there waits
// for ever.
TEST(SharedMutexTest, AChildOfForkCanWriteWhateverOtherThreadsDid) {
  SharedMutex mutex;
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) ReaderLock lock(&mutex);
    });
  }
  for (int round = 0; round < 50; ++round) {
    mutex.Lock();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock that stayed taken ends the child, not the test run
      mutex.UnlockInChild();
      { ReaderLock lock(&mutex); }
      { WriterLock lock(&mutex); }
      { ReaderLock lock(&mutex); }
      _exit(0);
    }
    mutex.Unlock();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace ebbtide
