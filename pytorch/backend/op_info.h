// SPDX-License-Identifier: Apache-2.0
//
// OpInfo: what the hook has to know of an operator, worked out once from its schema, its tags, its
// registered kernels and the table of exceptions (op_table.h).
//
// Threads: InfoOf may be called from any thread; a thread's repeated look-ups take no lock. Infos
// live as long as the process. An operator that is registered again after its library was destroyed
// gets a new schema object and so a new info.

#ifndef EBBTIDE_PYTORCH_BACKEND_OP_INFO_H_
#define EBBTIDE_PYTORCH_BACKEND_OP_INFO_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>

#include "pytorch/backend/op_table.h"

namespace ebbtide {

struct OpInfo {
  std::string name;  // without overload
  size_t arguments = 0;
  size_t returns = 0;
  // Bit i: argument i is written, declared or silently.
  uint64_t written = 0;
  // Bits of `written` that hold only if argument `only_if_argument` is true.
  uint64_t conditionally_written = 0;
  int only_if_argument = -1;
  // As in OpRow.
  uint64_t scratch_results = 0;
  bool scratch_arguments = false;
  // Argument that may carry a random generator; -1: none.
  int generator_argument = -1;
  // May draw random numbers.
  bool random = false;
  // May be run again.
  bool replayable = false;
  // Made of other operators, each of which the hook sees by itself.
  bool composite = false;
  // Hands its tensors to other threads.
  bool collective = false;
  bool keeps_addresses = false;
  bool uninitialised = false;
  // Some return is not just a written argument: new storages may appear.
  bool makes_outputs = false;

  // Whether argument i is written by a call with these arguments.
  bool Writes(size_t i, const c10::IValue* arguments_begin) const {
    if (i >= 64 || (written >> i & 1) == 0) return false;
    if ((conditionally_written >> i & 1) == 0) return true;
    const c10::IValue& condition = arguments_begin[only_if_argument];
    return !condition.isBool() || condition.toBool();
  }
};

const OpInfo& InfoOf(const c10::OperatorHandle& op);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_OP_INFO_H_
