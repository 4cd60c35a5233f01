// SPDX-License-Identifier: Apache-2.0
//
// Locks with annotations that clang checks (-Wthread-safety): the standard library's, under the
// names of the annotations. They are the standard library's because a lock is taken for each
// operator: absl::Mutex, as distributions build it, looks for deadlocks at every Lock, and
// ThreadSanitizer does not see it where it was not built with it.
//
// Threads: that is what they are for. Around fork() a Mutex is locked before and unlocked after, in
// the parent and in the child; a SharedMutex has functions of its own for that. Ownership: none; a
// lock object must not outlive its mutex.

#ifndef EBBTIDE_BASE_MUTEX_H_
#define EBBTIDE_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "absl/base/thread_annotations.h"

namespace ebbtide {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  // Releases `mutex`, waits for a signal (or wakes without one: check again), takes it back.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

// Many readers or one writer. A reader must not lock again while it reads.
class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  // Before fork(), and after it in the parent and in the child: no thread may be inside meanwhile.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  // The C library knows a writer by the number of its thread, which is another one in the child.
  void ResetInChild() { new (&mutex_) std::shared_mutex; }

 private:
  friend class ReaderLock;
  friend class WriterLock;
  std::shared_mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE ReaderLock {
 public:
  explicit ReaderLock(SharedMutex* mutex) ABSL_SHARED_LOCK_FUNCTION(mutex) : lock_(mutex->mutex_) {}
  ~ReaderLock() ABSL_UNLOCK_FUNCTION() {}

 private:
  const std::shared_lock<std::shared_mutex> lock_;
};

class ABSL_SCOPED_LOCKABLE WriterLock {
 public:
  explicit WriterLock(SharedMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : lock_(mutex->mutex_) {}
  ~WriterLock() ABSL_UNLOCK_FUNCTION() {}

 private:
  const std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_MUTEX_H_
