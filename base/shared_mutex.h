// SPDX-License-Identifier: Apache-2.0
//
// SharedMutex: many readers or one writer, for what is read at each operator and hardly ever
// written. Readers on different threads touch different cache lines, so that they neither wait for
// each other nor slow each other down; a writer goes round all of them.
//
// Threads: that is what it is for. A reader must not lock again while it reads. Around fork() it is
// locked before, unlocked after in the parent, and in the child by UnlockInChild. Ownership: none;
// a lock object must not outlive its mutex.

#ifndef EBBTIDE_BASE_SHARED_MUTEX_H_
#define EBBTIDE_BASE_SHARED_MUTEX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ebbtide {

class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  void Unlock() ABSL_UNLOCK_FUNCTION();
  // Instead of Unlock in the child of a fork. Of other threads, which it does not have, some may
  // have been about to read.
  void UnlockInChild() ABSL_UNLOCK_FUNCTION();

 private:
  friend class ReaderLock;

  static constexpr size_t kShards = 16;
  // Set in all shards while somebody writes; the other bits count readers.
  static constexpr uint32_t kWriting = uint32_t{1} << 31;

  struct alignas(64) Shard {
    std::atomic<uint32_t> state{0};
  };

  // The calling thread's; never 0 once it has one.
  static constinit thread_local uint32_t thread_number __attribute__((tls_model("initial-exec")));

  Shard* MyShard() {
    if (thread_number == 0) NumberThread();
    return &shards_[thread_number % kShards];
  }
  static void NumberThread();
  void WaitForWriter(Shard* shard);

  std::array<Shard, kShards> shards_;
  Mutex writer_;
};

class ABSL_SCOPED_LOCKABLE ReaderLock {
 public:
  explicit ReaderLock(SharedMutex* mutex) ABSL_SHARED_LOCK_FUNCTION(mutex)
      : shard_(mutex->MyShard()) {
    const uint32_t before = shard_->state.fetch_add(1, std::memory_order_acquire);
    if ((before & SharedMutex::kWriting) != 0) mutex->WaitForWriter(shard_);
  }
  ~ReaderLock() ABSL_UNLOCK_FUNCTION() { shard_->state.fetch_sub(1, std::memory_order_release); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex::Shard* const shard_;
};

class ABSL_SCOPED_LOCKABLE WriterLock {
 public:
  explicit WriterLock(SharedMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~WriterLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex* const mutex_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_SHARED_MUTEX_H_
