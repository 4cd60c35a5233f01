// SPDX-License-Identifier: Apache-2.0
//
// Checks for errors of the programmer, never for bad input (that is a Status). A failed check
// writes one line to stderr and aborts:
//
//     EBB_CHECK(block->next != block) << "free list of size class " << size_class;
//     [ebbtide] check failed allocator/free_list.cc:41: block->next != block: free list of size ...
//
// EBB_CHECK is always on: use it where wrong memory would be handed out otherwise. EBB_DCHECK is
// compiled but not evaluated when NDEBUG is defined: use it on hot paths and for costly invariants.
// Both are statements; the text after << is built only on failure. Safe on any thread. The line is
// written with write(2), without locks and without the logger, which may itself be what failed.

#ifndef EBBTIDE_BASE_CHECK_H_
#define EBBTIDE_BASE_CHECK_H_

#include <sstream>

namespace ebbtide::internal {

// Collects the text of a failed check; the end of the statement destroys it, and that aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
  const char* const file_;
  const int line_;
  const char* const condition_;
};

}  // namespace ebbtide::internal

#define EBB_CHECK(condition)                \
  while (__builtin_expect(!(condition), 0)) \
  ::ebbtide::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#ifdef NDEBUG
#define EBB_DCHECK(condition)   \
  while (false && !(condition)) \
  ::ebbtide::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
#else
#define EBB_DCHECK(condition) EBB_CHECK(condition)
#endif

#endif  // EBBTIDE_BASE_CHECK_H_
