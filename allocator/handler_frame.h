// SPDX-License-Identifier: Apache-2.0
//
// HandlerFrame marks that a pressure handler runs on this thread: a request that is made inside of
// one must not call it again. The allocator makes one on its stack around the call.
//
// Threads: frames belong to their thread. Ownership: none.

#ifndef EBBTIDE_ALLOCATOR_HANDLER_FRAME_H_
#define EBBTIDE_ALLOCATOR_HANDLER_FRAME_H_

namespace ebbtide {

// The handlers that run on this thread, innermost first.
struct HandlerFrame {
  explicit HandlerFrame(const void* allocator) : owner(allocator), outer(innermost) {
    innermost = this;
  }
  ~HandlerFrame() { innermost = outer; }
  HandlerFrame(const HandlerFrame&) = delete;
  HandlerFrame& operator=(const HandlerFrame&) = delete;

  static bool Contains(const void* allocator) {
    for (const HandlerFrame* f = innermost; f != nullptr; f = f->outer) {
      if (f->owner == allocator) return true;
    }
    return false;
  }

  const void* const owner;
  HandlerFrame* const outer;
  static inline thread_local HandlerFrame* innermost = nullptr;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_HANDLER_FRAME_H_
