// SPDX-License-Identifier: Apache-2.0

#include "allocator/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_format.h"

namespace ebbtide {
namespace {

constexpr int kMaxSkip = 8;

std::string Demangle(const char* name) {
  int status = -1;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &free);
  return status == 0 ? text.get() : name;
}

std::string DescribeFrame(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::string text;
  if (info.dli_sname != nullptr) {
    text = absl::StrFormat(" %s+%#x", Demangle(info.dli_sname),
                           at - reinterpret_cast<uintptr_t>(info.dli_saddr));
  }
  return text + absl::StrFormat(" (%s+%#x)", info.dli_fname,
                                at - reinterpret_cast<uintptr_t>(info.dli_fbase));
}

}  // namespace

// Not inlined, so that it is exactly one frame.
[[gnu::noinline]] CallStack CallStack::Capture(int skip) {
  void* frames[kMaxFrames + kMaxSkip];
  const int own = std::clamp(skip, 0, kMaxSkip - 1) + 1;
  const int count = backtrace(frames, kMaxFrames + own);
  CallStack stack;
  stack.count_ = std::max(count - own, 0);
  std::copy_n(frames + own, stack.count_, stack.frames_);
  return stack;
}

void CallStack::Prepare() {
  void* frame = nullptr;
  backtrace(&frame, 1);
}

std::string CallStack::Format(absl::string_view indent) const {
  std::string text;
  for (int i = 0; i < count_; ++i) {
    absl::StrAppendFormat(&text, "%s#%d %p%s\n", indent, i, frames_[i], DescribeFrame(frames_[i]));
  }
  return text;
}

}  // namespace ebbtide
