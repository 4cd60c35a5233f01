# SPDX-License-Identifier: Apache-2.0
"""Runs inside the program's interpreter while torch is being imported; see python_hooks.h.

The names INSTALL, EXIT, BEGIN_SAVE and END_SAVE are there when this starts: addresses of C
functions. Nothing stays visible to the program but a changed C function inside a few of torch's own
objects.
"""

import atexit
import ctypes
import functools
import sys

# How a function uses the memory (python_hooks.cc has the same numbers): it reads or writes while it
# runs, or gives the address away.
READ = 0
ESCAPE = 1
NOT_COW = 2
READ_TO_INT = 3  # The C function returns an int, -1 for an error.
WRITE = 4  # It changes the memory itself, without an operator.

TENSOR_METHODS = {
    "apply_": WRITE,
    "const_data_ptr": ESCAPE,
    "data_ptr": ESCAPE,
    "map_": WRITE,
    "map2_": WRITE,
    "numpy": ESCAPE,
    "tolist": READ,
}

STORAGE_METHODS = {
    "__getitem__": READ,
    "__setitem__": READ_TO_INT,
    "_byteswap": WRITE,
    "_resize_with_addr_": ESCAPE,
    "_set_from_file": WRITE,
    "_share_cuda_": ESCAPE,
    "_share_fd_cpu_": READ,
    "_share_filename_cpu_": READ,
    "_swap_data_ptr_": READ,
    "_write_file": READ,
    "copy_": READ,
    "data_ptr": ESCAPE,
    "fill_": READ,
    "resize_": READ,
}

MODULE_FUNCTIONS = {
    "_data_address": ESCAPE,
    "_is_cow_tensor": NOT_COW,
    "_to_dlpack": ESCAPE,
    "_to_dlpack_versioned": ESCAPE,
}


def targets(c):
    """(object, mode) for everything of torch._C that this version has."""
    found = []
    for owner, names in (
        (c.TensorBase.__dict__, TENSOR_METHODS),
        (c.StorageBase.__dict__, STORAGE_METHODS),
        (c.__dict__, MODULE_FUNCTIONS),
    ):
        found += [(owner[name], mode) for name, mode in names.items() if name in owner]
    writer = c.PyTorchFileWriter.__dict__["write_record"]
    found.append((getattr(writer, "__func__", writer), READ))
    return found


def keep_while_saving(serialization):
    """torch.save tells storages apart by their address, so none may move until it is done."""
    begin, end = ctypes.CFUNCTYPE(None)(BEGIN_SAVE), ctypes.CFUNCTYPE(None)(END_SAVE)

    def wrap(save):
        @functools.wraps(save)
        def saving(*args, **kwargs):
            begin()
            try:
                return save(*args, **kwargs)
            finally:
                end()

        return saving

    for name in ("_save", "_legacy_save"):
        setattr(serialization, name, wrap(getattr(serialization, name)))


def imported(torch):
    """`import torch` is complete."""
    install = ctypes.PYFUNCTYPE(
        None, *([ctypes.py_object] * 5), ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p
    )(INSTALL)
    probe = torch.zeros(4)
    storage = probe.untyped_storage()
    keep_while_saving(torch.serialization)
    install(
        targets(torch._C),
        (torch._C.TensorBase, torch._C.StorageBase),
        torch.OutOfMemoryError,
        probe,
        storage,
        object.__basicsize__,
        probe._cdata,
        storage._cdata,
    )


def watch(spec):
    """Calls `imported` when the import system sets spec._initializing to False, its last act."""
    plain = type(spec)

    class ModuleSpec(plain):
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            if name == "_initializing" and not value:
                object.__setattr__(self, "__class__", plain)
                torch = sys.modules.get("torch")
                if torch is not None and getattr(torch, "__spec__", None) is self:
                    imported(torch)

    spec.__class__ = ModuleSpec


watch(sys.modules["torch"].__spec__)
atexit.register(ctypes.CFUNCTYPE(None)(EXIT))
