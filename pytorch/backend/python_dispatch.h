// SPDX-License-Identifier: Apache-2.0
//
// Keeps the hook in sight of the operators that a __torch_dispatch__ calls. Torch excludes every
// dispatch key above Python's while one runs. In torch 2.11 the hook's key is one of them, and
// kernels would read tensors that have been evicted. No key below Python's can take its place:
// those that no backend has count as backends, and an operator's kernel for all backends would run
// on them in the place of the one that it has for the tensor's own.
//
// Installed once, when Python and torch are both loaded; one thread calls it.

#ifndef EBBTIDE_PYTORCH_BACKEND_PYTHON_DISPATCH_H_
#define EBBTIDE_PYTORCH_BACKEND_PYTHON_DISPATCH_H_

namespace ebbtide {

// From now on the hook's key is not excluded in a __torch_dispatch__, except in one that a kernel
// leads to around which the hook has switched itself off. Does nothing where the hook lies below
// Python.
void KeepHookInPythonDispatch();

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_PYTHON_DISPATCH_H_
