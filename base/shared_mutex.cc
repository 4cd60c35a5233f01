// SPDX-License-Identifier: Apache-2.0

#include "base/shared_mutex.h"

#include <sched.h>

namespace ebbtide {

constinit thread_local uint32_t SharedMutex::thread_number
    __attribute__((tls_model("initial-exec"))) = 0;

// Dealt out in the order in which threads first read, so that few threads share a shard.
void SharedMutex::NumberThread() {
  static std::atomic<uint32_t> last{0};
  do {
    thread_number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (thread_number == 0);
}

void SharedMutex::WaitForWriter(Shard* shard) {
  uint32_t before = kWriting;
  while ((before & kWriting) != 0) {
    shard->state.fetch_sub(1, std::memory_order_relaxed);
    // The writer holds this one until it is done.
    writer_.Lock();
    writer_.Unlock();
    before = shard->state.fetch_add(1, std::memory_order_acquire);
  }
}

void SharedMutex::Lock() {
  writer_.Lock();
  // First all, so that waiting for one reader does not let in others.
  for (Shard& shard : shards_) shard.state.fetch_or(kWriting, std::memory_order_acquire);
  for (Shard& shard : shards_) {
    // A reader needs a few instructions, or its turn on the processor.
    while (shard.state.load(std::memory_order_acquire) != kWriting) sched_yield();
  }
}

void SharedMutex::Unlock() {
  for (Shard& shard : shards_) shard.state.fetch_and(~kWriting, std::memory_order_release);
  writer_.Unlock();
}

void SharedMutex::UnlockInChild() {
  for (Shard& shard : shards_) shard.state.store(0, std::memory_order_release);
  writer_.Unlock();
}

}  // namespace ebbtide
