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

TEST(SharedMutexTest, HeldAcrossForkItWorksInTheChild) {
  SharedMutex mutex;
  mutex.Lock();
  const pid_t child = fork();
  mutex.Unlock();
  if (child == 0) {
    { ReaderLock lock(&mutex); }
    { WriterLock lock(&mutex); }
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace ebbtide
