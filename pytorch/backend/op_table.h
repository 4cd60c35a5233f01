// SPDX-License-Identifier: Apache-2.0
//
// The one table of what operators do that their schemas do not say: arguments that are written
// silently, and results that another run of the same call would not give. Each row says why; the
// rows were found by running every operator twice and comparing bits (tests/pytorch/test_op_db.py).
//
// Constant data, safe on any thread. To add a row, edit op_table.cc; the lookup is by name without
// overload ("aten::native_batch_norm").

#ifndef EBBTIDE_PYTORCH_BACKEND_OP_TABLE_H_
#define EBBTIDE_PYTORCH_BACKEND_OP_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace ebbtide {

struct OpRow {
  absl::string_view name;
  // Bit i: argument i is written although the schema does not say so.
  uint64_t silently_written = 0;
  // If not negative: only when this (boolean) argument is true.
  int only_if_argument = -1;
  // Bit i: the tensor at place i of the results holds scratch memory that is not compared in verify
  // mode. The other: so does what the call leaves in its arguments.
  uint64_t scratch_results = 0;
  bool scratch_arguments = false;
  // Another run gives other bits, or must not happen.
  bool never_replayed = false;
  // The address of the arguments' storages outlives the call.
  bool keeps_addresses = false;
  // The results are memory that nothing has written yet.
  bool uninitialised = false;
  absl::string_view reason;
};

// Null if the operator does just what its schema says.
const OpRow* FindOpRow(absl::string_view name);

// Operators whose schemas tell the truth but for the rows of the table. Of any other namespace all
// tensor arguments count as written, and nothing is replayed.
bool IsTrustedNamespace(absl::string_view space);

// Operators of these namespaces hand tensors to other threads, which use them after the call
// returned.
bool IsCollectiveNamespace(absl::string_view space);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_OP_TABLE_H_
