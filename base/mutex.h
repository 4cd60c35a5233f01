// SPDX-License-Identifier: Apache-2.0
//
// Locks with annotations that clang checks (-Wthread-safety): the standard library's, under the
// names of the annotations. They are the standard library's because a lock is taken for each
// operator: absl::Mutex, as distributions build it, looks for deadlocks at every Lock, and
// ThreadSanitizer does not see it where it was not built with it.
//
// Threads: that is what they are for. A Mutex may be held across fork and released in the child by
// the thread that forked. Ownership: none; a lock object must not outlive its mutex. For what is
// read far more often than written see shared_mutex.h.

#ifndef EBBTIDE_BASE_MUTEX_H_
#define EBBTIDE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

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
  // The same, but waits no longer than `limit`.
  void WaitFor(Mutex* mutex, std::chrono::nanoseconds limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    changed_.wait_for(lock, limit);
    lock.release();
  }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_MUTEX_H_
