// SPDX-License-Identifier: Apache-2.0
//
// Kernels on the hook's key for the most frequent operators, which see their arguments before they
// are boxed. Where the hook would do nothing but watch, because no storage of the call has a record
// and its result is too small to get one, such a kernel calls the operator directly: boxing costs
// several times what the watching does. Every other call goes on to the hook, which decides anew.
//
// Threads: any, with the hook armed or not. Ownership: none. To add an operator, add it to the list
// in small_calls.cc; installing leaves out those that need more than the hook's common path.

#ifndef EBBTIDE_PYTORCH_BACKEND_SMALL_CALLS_H_
#define EBBTIDE_PYTORCH_BACKEND_SMALL_CALLS_H_

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

namespace ebbtide {

// Registers the kernels with `aten`, a library of the namespace aten for the hook's key. `hook` is
// the boxed hook, which takes the calls that are not small. Once, before the hook is armed.
void InstallSmallCalls(torch::Library* aten, const c10::KernelFunction& hook);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_SMALL_CALLS_H_
