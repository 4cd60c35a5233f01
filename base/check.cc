// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace ebbtide::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition)
    : file_(file), line_(line), condition_(condition) {}

CheckFailure::~CheckFailure() {
  std::ostringstream line;
  line << "[ebbtide] check failed " << file_ << ":" << line_ << ": " << condition_;
  if (const std::string text = text_.str(); !text.empty()) line << ": " << text;
  line << "\n";
  // One write, so that lines of several threads do not mix. If it fails there is nobody to tell.
  const std::string whole = line.str();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
  std::abort();
}

}  // namespace ebbtide::internal
