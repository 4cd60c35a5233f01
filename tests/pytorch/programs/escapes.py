# SPDX-License-Identifier: Apache-2.0
"""Every way of reading a tensor's memory without an operator, one case each.

Reports {"wrong": {case: what came out}, "cases": number}. With --probe PATH, a C++ extension
(probes/raw_pointers.cc) takes part.
"""

import argparse
import copy
import ctypes
import io
import json
import os
import pickle
import tempfile
import threading

import numpy as np
import torch

COUNT = 40000
EXPECTED = np.arange(COUNT, dtype=np.float32) + 1
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def work():
    """Some operators, so that whatever can be evicted is, and its memory is used again."""
    for _ in range(3):
        (torch.ones(COUNT) * 2).sum()


def fresh():
    x = torch.arange(COUNT, dtype=torch.float32) + 1
    work()
    return x


def same(values):
    return np.array_equal(np.asarray(values, dtype=np.float32), EXPECTED)


def at_address(pointer):
    return np.frombuffer((ctypes.c_char * (4 * COUNT)).from_address(pointer), dtype=np.float32)


def kept(view):
    """Right now, and still right after other work."""
    now = same(view)
    work()
    return now and same(view)


@case
def tolist(x):
    return same(x.tolist())


@case
def item(x):
    return x[5].item() == 6 and float(x[6]) == 7 and int(x[7]) == 8


@case
def printed(x):
    return "4.0000e+04" in repr(x) and "4.0000e+04" in str(x)


@case
def numpy(x):
    return kept(x.numpy())


@case
def numpy_sees_later_writes(x):
    view = x.numpy()
    work()
    x += 1
    return same(view - 1)


@case
def numpy_writes_are_seen(x):
    view = x.numpy()
    work()
    view += 1
    return same((x - 1).tolist())


@case
def asarray(x):
    return kept(np.asarray(x))


@case
def dlpack(x):
    return kept(np.from_dlpack(x))


@case
def dlpack_capsule(x):
    return kept(torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).numpy())


@case
def data_ptr(x):
    return kept(at_address(x.data_ptr()))


@case
def data_ptr_of_the_base_class(x):
    return kept(at_address(torch._C.TensorBase.data_ptr(x)))


@case
def data_ptr_of_an_unused_block(_):
    x = torch.empty(COUNT)
    view = at_address(x.data_ptr())
    view[:] = EXPECTED
    work()
    return same((x + 0).tolist()) and kept(view)


@case
def const_data_ptr(x):
    return not hasattr(x, "const_data_ptr") or kept(at_address(x.const_data_ptr()))


@case
def storage_data_ptr(x):
    return kept(at_address(x.untyped_storage().data_ptr()))


@case
def storage_items(x):
    storage = x.untyped_storage()
    return bytes(storage[i] for i in range(64)) == EXPECTED.tobytes()[:64]


@case
def storage_assignment(x):
    x.untyped_storage()[4:8] = 0
    return x[1].item() == 0 and x[2].item() == 3


@case
def storage_clone(x):
    return np.array_equal(np.frombuffer(bytes(x.untyped_storage().clone()[i] for i in range(64)),
                                        dtype=np.float32), EXPECTED[:16])


@case
def storage_resize(x):
    x.untyped_storage().resize_(4 * COUNT + 4000)
    return same(x.tolist())


@case
def storage_view(x):
    return same(torch.tensor([]).set_(x.untyped_storage(), 0, (COUNT,)).tolist())


@case
def typed_storage(x):
    return same(x.storage().tolist())


@case
def share_memory(x):
    return same(x.share_memory_().tolist()) and kept(x.numpy())


@case
def buffer_protocol(x):
    return kept(np.frombuffer(memoryview(x.numpy()), dtype=np.float32))


@case
def deepcopy(x):
    return same(copy.deepcopy(x).tolist()) and same(copy.copy(x).tolist())


@case
def deepcopy_of_a_parameter(x):
    return same(copy.deepcopy(torch.nn.Parameter(x)).tolist())


@case
def pickled(x):
    return same(pickle.loads(pickle.dumps(x)).tolist())


def saved(x, **options):
    file = io.BytesIO()
    torch.save({"all": x, "part": x[3:]}, file, **options)
    file.seek(0)
    loaded = torch.load(file)
    return same(loaded["all"].tolist()) and loaded["part"][0].item() == 4


@case
def saved_zip(x):
    return saved(x)


@case
def saved_legacy(x):
    return saved(x, _use_new_zipfile_serialization=False)


@case
def saved_file(x):
    with tempfile.TemporaryDirectory() as folder:
        torch.save(x, os.path.join(folder, "x.pt"))
        return same(torch.load(os.path.join(folder, "x.pt"), mmap=True).tolist())


@case
def apply_with_operators_inside(x):
    x = x[:100].clone()
    x.apply_(lambda value: value + torch.ones(COUNT).sum().item() - COUNT)
    return x.tolist() == list(range(1, 101))


@case
def map_with_another(x):
    y = torch.zeros(COUNT)
    work()
    return same(y.map_(x, lambda _, b: b).tolist())


@case
def tensor_from_elements(x):
    elements = [x[0], x[1], 3.0]
    work()
    return torch.tensor(elements).tolist() == [1, 2, 3]


@case
def lazy_clone(x):
    y = x._lazy_clone()
    work()
    y += 1
    return same(x.tolist()) and same((y - 1).tolist())


@case
def copy_on_write_is_told_rightly(x):
    before = torch._C._is_cow_tensor(x)
    y = x._lazy_clone()
    return not before and torch._C._is_cow_tensor(x) and torch._C._is_cow_tensor(y)


@case
def subclass(x):
    class Named(torch.Tensor):
        pass

    return same(x.as_subclass(Named).tolist()) and kept(x.as_subclass(Named).numpy())


@case
def other_thread(x):
    result = []
    thread = threading.Thread(target=lambda: result.append(same((x + 1 - 1).tolist())))
    thread.start()
    thread.join()
    return result == [True]


@case
def nothing_of_python_changed(_):
    return (type(torch.Tensor.tolist).__name__ == "method_descriptor"
            and torch.Tensor.tolist.__doc__ is not None
            and pickle.loads(pickle.dumps(torch.Tensor.numpy)) is torch.Tensor.numpy
            and type(torch.__spec__).__mro__[1] is object)


def add_extension_cases(path):
    probe = ctypes.CDLL(path)
    for function in (probe.probe_keep, probe.probe_keep_const):
        function.argtypes = [ctypes.c_ssize_t]
    for function in (probe.probe_read, probe.probe_read_const):
        function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_float
    probe.probe_write.argtypes, probe.probe_write.restype = [ctypes.c_int64, ctypes.c_float], None

    def correct(read):
        return all(read(i) == i + 1 for i in range(0, COUNT, 97))

    @case
    def extension_keeps_a_pointer(x):
        assert probe.probe_keep(x._cdata) == 0
        first = correct(probe.probe_read)
        work()
        second = correct(probe.probe_read)
        probe.probe_write(3, 100.0)
        return first and second and x[3].item() == 100

    @case
    def extension_keeps_a_const_pointer(x):
        assert probe.probe_keep_const(x._cdata) == 0
        first = correct(probe.probe_read_const)
        work()
        return first and correct(probe.probe_read_const)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", required=True)
    parser.add_argument("--probe")
    arguments = parser.parse_args()
    if arguments.probe:
        add_extension_cases(arguments.probe)
    wrong = {}
    for name, function in CASES.items():
        try:
            if not function(fresh()):
                wrong[name] = "wrong bytes"
        except Exception as error:  # every case is reported
            wrong[name] = f"{type(error).__name__}: {error}"[:300]
    with open(arguments.result, "w", encoding="utf-8") as file:
        json.dump({"wrong": wrong, "cases": len(CASES)}, file)


if __name__ == "__main__":
    main()
