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

// Torch 2.15 has Fake below Python, torch 2.11 above; see python_dispatch.h.
inline constexpr bool kHookAbovePython = HookKey() > c10::DispatchKey::Python;

// Excluded with the hook's key wherever the hook switches itself off, and by nobody else. It tells
// that from torch excluding many keys at once. No tensor has it.
constexpr c10::DispatchKey HookOffKey() { return c10::DispatchKey::CustomRNGKeyId; }

// What is excluded while a kernel runs.
constexpr c10::DispatchKeySet HookKeys() { return c10::DispatchKeySet({HookKey(), HookOffKey()}); }

// What a call with these keys is dispatched with below `key`.
inline c10::DispatchKeySet KeysBelow(c10::DispatchKey key, c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
}

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_DISPATCH_KEY_H_
