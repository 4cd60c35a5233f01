// SPDX-License-Identifier: Apache-2.0
//
// The dispatch key that the hook sits on. Fake lies below autograd and everything else that takes
// operators apart, and above the backends' kernels; torch reserves it but does not use it (the hook
// refuses to start where it does). A constant.

#ifndef EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_
#define EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_

#include <c10/core/DispatchKey.h>

namespace ebbtide {

constexpr c10::DispatchKey HookKey() { return c10::DispatchKey::Fake; }

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_
