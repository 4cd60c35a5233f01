// SPDX-License-Identifier: Apache-2.0
//
// Who asks torch for a mutable pointer, outside of any operator? The answer decides how long the
// memory must stay where it is. It is found by walking up the stack to the first function that is
// neither torch's nor the C runtime's: rare (at most once between two operators on the same
// storage) and therefore allowed to cost microseconds.
//
// Threads: any; takes no lock. Ownership: none. To teach it another kind of caller, extend
// ClassifyModule in the .cc.
#ifndef EBBTIDE_PYTORCH_ACCESS_CLASSIFIER_H_
#define EBBTIDE_PYTORCH_ACCESS_CLASSIFIER_H_

namespace ebbtide {

// The first caller above torch.
enum class Caller {
  kTorch,    // torch's own bindings, called by the Python interpreter.
  kKernel,   // A kernel that torch.compile made: uses the pointer during this call only.
  kForeign,  // Any other code, or code that no loaded file accounts for.
};

// Walks the stack of the calling thread.
Caller ClassifyCaller();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_ACCESS_CLASSIFIER_H_
