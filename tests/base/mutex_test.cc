// SPDX-License-Identifier: Apache-2.0

#include "base/mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ebbtide {
namespace {

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
  for (int round = 0; round < 20; ++round) {
    mutex.LockForFork();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock that stayed taken ends the child, not the test run
      mutex.ResetInChild();
      { ReaderLock lock(&mutex); }
      { WriterLock lock(&mutex); }
      { ReaderLock lock(&mutex); }
      _exit(0);
    }
    mutex.UnlockInParent();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace ebbtide
