// SPDX-License-Identifier: Apache-2.0
//
// The dispatch keys that the hook sits on. Fake lies below autograd and everything else that takes
// operators apart, and above the backends' kernels; torch reserves it but does not use it (the hook
// refuses to start where it does). A constant.

#ifndef EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_
#define EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

namespace ebbtide {

constexpr c10::DispatchKey HookKey() { return c10::DispatchKey::Fake; }

// A second key, above autograd, on which only a few operators have a kernel of ours: composite ones
// that read an argument's memory directly before they call others.
constexpr c10::DispatchKey ReaderKey() { return c10::DispatchKey::DeferredInit; }

// Torch excludes all keys above Python's while a __torch_dispatch__ runs, and in torch 2.11 the
// hook's is one of them. Operators that are called there, on tensors that a subclass wraps or under
// a mode, pass the hook on a second key, which lies below.
inline constexpr bool kHookAbovePython = HookKey() > c10::DispatchKey::Python;
constexpr c10::DispatchKey InnerHookKey() { return c10::DispatchKey::CustomRNGKeyId; }

// All keys of the hook: those that are off while a kernel runs.
constexpr c10::DispatchKeySet HookKeys() {
  return kHookAbovePython ? c10::DispatchKeySet({HookKey(), InnerHookKey()})
                          : c10::DispatchKeySet(HookKey());
}

// What a call with these keys is dispatched with below `key`.
inline c10::DispatchKeySet KeysBelow(c10::DispatchKey key, c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
}

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_
