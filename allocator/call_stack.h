// SPDX-License-Identifier: Apache-2.0
//
// The stack of a thread, kept cheaply: capturing it stores addresses, and only a report that prints
// them looks up their names.
//
// Threads: plain values, safe on any. Capture allocates nothing, once Prepare was called, and takes
// some microseconds; it must not run in a signal handler. Ownership: none; names are looked up in
// the libraries that are loaded when Format is called.

#ifndef EBBTIDE_ALLOCATOR_CALL_STACK_H_
#define EBBTIDE_ALLOCATOR_CALL_STACK_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ebbtide {

class CallStack {
 public:
  static constexpr int kMaxFrames = 20;

  CallStack() = default;  // empty

  // The calling thread's stack without its innermost `skip` frames; 0 begins with the caller.
  static CallStack Capture(int skip);

  // Loads what Capture needs, which allocates. Call it once before Capture runs inside an
  // allocator.
  static void Prepare();

  // A line for each frame, innermost first: `indent`, "#0 ", address, name and offset if the name
  // is exported, and the file with the offset that addr2line wants.
  std::string Format(absl::string_view indent) const;

  bool empty() const { return count_ == 0; }

 private:
  void* frames_[kMaxFrames];
  int count_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_CALL_STACK_H_
