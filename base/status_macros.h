// SPDX-License-Identifier: Apache-2.0
//
// The two statements that pass errors upwards. A Status is a value: nothing here throws, locks or
// owns, and both work on any thread. The enclosing function returns absl::Status or absl::StatusOr.
//
//     EBB_RETURN_IF_ERROR(device.Commit(address, size));
//     EBB_ASSIGN_OR_RETURN(void* address, device.Reserve(size));

#ifndef EBBTIDE_BASE_STATUS_MACROS_H_
#define EBBTIDE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates `expression` (an absl::Status) once and returns it from the function unless it is OK.
#define EBB_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                 \
    if (::absl::Status ebb_status = (expression); !ebb_status.ok()) return ebb_status; \
  } while (false)

// Evaluates `expression` (an absl::StatusOr<T>) once; returns its error from the function, or
// assigns its value to `target`, which may be a declaration. Expands to several statements, so it
// needs braces under an `if`. A type with a comma in it needs an alias.
#define EBB_ASSIGN_OR_RETURN(target, expression) \
  EBB_ASSIGN_OR_RETURN_NAMED_(EBB_JOIN_(ebb_status_or_, __LINE__), target, expression)

#define EBB_ASSIGN_OR_RETURN_NAMED_(name, target, expression) \
  auto name = (expression);                                   \
  if (!name.ok()) return std::move(name).status();            \
  target = *std::move(name)

#define EBB_JOIN_(a, b) EBB_JOIN_INNER_(a, b)
#define EBB_JOIN_INNER_(a, b) a##b

#endif  // EBBTIDE_BASE_STATUS_MACROS_H_
