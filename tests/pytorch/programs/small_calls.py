# SPDX-License-Identifier: Apache-2.0
"""Calls on tiny tensors, and what large tensors and other memory have to do with them.

    python small_calls.py cases     {"wrong": [case], "cases": number}
    python small_calls.py count     the same calls each time, for their number

Addresses are taken by a C++ extension, probes/raw_pointers.cc, at the path --probe.
"""

import argparse
import ctypes
import json
import pathlib
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH = 8
ROWS = 32 << 10  # A tensor of ROWS x WIDTH has 1 MiB.
CASES = {}
PROBE = None
IN_PLACE = {
    "add_": lambda x: x.add_(1),
    "sub_": lambda x: x.sub_(torch.ones(WIDTH)),
    "mul_": lambda x: x.mul_(3),
    "div_": lambda x: x.div_(torch.full((WIDTH,), 2.0)),
    "copy_": lambda x: x.copy_(torch.ones(WIDTH)),
    "fill_": lambda x: x.fill_(7),
    "zero_": lambda x: x.zero_(),
    "relu_": lambda x: x.neg_().relu_(),
    "addcmul_": lambda x: x.addcmul_(torch.ones(WIDTH), torch.ones(WIDTH)),
    "lerp_": lambda x: x.lerp_(torch.zeros(WIDTH), 0.5),
    "_foreach_add_": lambda x: torch._foreach_add_([x], [torch.ones(WIDTH)]),
    "_foreach_mul_": lambda x: torch._foreach_mul_([torch.ones(WIDTH), x], 5),
}


def case(function):
    CASES[function.__name__] = function
    return function


def press():
    """More tensors than the budget has room for, so that most others leave."""
    ones = torch.ones(WIDTH)
    return sum(large[0, 0].item() for large in [torch.ones(ROWS, WIDTH) * ones
                                                for _ in range(40)])


def numbers():
    """1 to WIDTH, made by small calls."""
    return torch.arange(WIDTH, dtype=torch.float32).add(0.5).add_(0.5)


def large_from(small):
    """A large tensor, recorded, of which each row is `small`."""
    return torch.ones(ROWS, WIDTH) * small


def rows_are(large, expected):
    press()
    return bool((large == torch.tensor(expected, dtype=large.dtype)).all())


EXPECTED = [float(i + 1) for i in range(WIDTH)]


@case
def results_of_small_calls_are_sources():
    small = numbers()
    large = large_from(small)
    return rows_are(large, EXPECTED) and small.tolist() == EXPECTED


def write_case(write):
    """What recorded calls have read is written in place: they must read the old content."""
    small = numbers()
    larges = [large_from(small) for _ in range(4)]
    press()
    write(small)
    changed = small.tolist()
    unharmed = all(rows_are(large, EXPECTED) for large in larges)
    return unharmed and small.tolist() == changed != EXPECTED


for name, operator in IN_PLACE.items():
    CASES[f"a recorded argument is written by {name}"] = (
        lambda operator=operator: write_case(operator))


@case
def a_view_of_an_evicted_tensor_is_read():
    large = large_from(numbers())
    press()
    return (large[5] + 1).tolist() == [x + 1 for x in EXPECTED]


@case
def a_view_of_an_evicted_tensor_is_written():
    large = large_from(numbers())
    press()
    large[5].mul_(2)
    return rows_are(large[:5], EXPECTED) and large[5].tolist() == [2 * x for x in EXPECTED]


@case
def an_evicted_tensor_is_one_of_a_list():
    large = large_from(numbers())
    press()
    joined = torch.cat([numbers(), large[7], numbers()])
    return joined.tolist() == 3 * EXPECTED


def address_escapes(small):
    """Its content changes without an operator after a call has read it."""
    assert PROBE.probe_keep(ctypes.c_ssize_t(small._cdata)) == 0
    larges = [large_from(small) for _ in range(4)]
    expected = small.tolist()
    PROBE.probe_write(ctypes.c_int64(0), ctypes.c_float(77))
    return all(rows_are(large, expected) for large in larges) and small[0].item() == 77


@case
def the_address_of_a_result_escapes():
    return address_escapes(numbers() + 1)


@case
def the_address_of_one_of_several_results_escapes():
    return address_escapes(torch.max(numbers().expand(3, WIDTH), 0).values)


@case
def the_address_of_a_written_argument_escapes():
    small = numbers()
    small.mul_(2)
    return address_escapes(small)


@case
def the_address_of_an_argument_that_torch_filled_escapes():
    small = torch.tensor(EXPECTED)
    small.add(1)
    return address_escapes(small)


@case
def the_address_of_an_argument_of_a_failed_call_escapes():
    small = numbers()
    try:
        small.add_(torch.ones(3))
        return False
    except RuntimeError:
        return address_escapes(small)


class Wrapper(torch.Tensor):
    """A tensor without memory of its own around another."""

    @staticmethod
    def __new__(cls, inner):
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        inner = [x.inner if isinstance(x, Wrapper) else x for x in args]
        return cls(function(*inner, **(kwargs or {})))


@case
def a_subclass_is_taken_apart():
    large = large_from(numbers())
    press()
    return (Wrapper(large[3]) + numbers()).inner.tolist() == [2 * x for x in EXPECTED]


class Reads(TorchDispatchMode):
    """Reads a tensor that is no argument whenever an operator runs."""

    def __init__(self, other):
        super().__init__()
        self.other, self.seen = other, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append((self.other * 1).tolist())
        return function(*args, **(kwargs or {}))


@case
def a_mode_reads_what_has_left():
    larges = [large_from(numbers()) for _ in range(4)]
    press()
    with Reads(larges[0][3]) as mode:
        numbers() + 1
    return len(mode.seen) > 0 and all(seen == EXPECTED for seen in mode.seen)


class Keeps(TorchDispatchMode):
    """Keeps the devices on which operators ran, and hands them on."""

    def __init__(self):
        super().__init__()
        self.devices = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.devices.add((str(function), result.device.type))
        return result


@torch.library.custom_op("small_calls::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    assert x.device.type == "cpu", "the kernel of another device"
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@case
def an_operator_runs_the_kernel_of_its_device():
    """It has one for all devices and one for tensors without memory, here under a mode."""
    larges = [large_from(numbers()) for _ in range(4)]
    press()
    with Keeps() as mode:
        meta = twice(torch.empty(WIDTH, device="meta"))
        result = twice(larges[0])
    kinds = {device for name, device in mode.devices if "twice" in name}
    return (kinds == {"meta", "cpu"} and meta.device.type == "meta" and
            rows_are(result, [2 * x for x in EXPECTED]))


@case
def large_results_of_unknown_arguments_leave():
    """Without a record they could not, and would not fit."""
    source = torch.empty(ROWS, WIDTH).fill_(1)
    larges = [source * numbers() for _ in range(40)]
    return all(rows_are(large, EXPECTED) for large in larges[:4])


@case
def a_sparse_tensor_is_written():
    values = large_from(numbers()) * -1
    larges = [values + numbers() for _ in range(4)]
    sparse = torch.sparse_coo_tensor(torch.arange(ROWS)[None], values, is_coalesced=True)
    press()
    sparse.relu_()
    zeros = [0.0] * WIDTH
    return rows_are(values, zeros) and all(rows_are(large, zeros) for large in larges)


@case
def memory_that_is_not_ours_is_computed_with():
    numpy = numbers().numpy()
    shared = torch.from_numpy(numpy)
    shared.add_(1)
    return (shared + numbers()).tolist() == [2 * x + 1 for x in EXPECTED] and numpy[0] == 2


@case
def threads_share_small_tensors():
    shared = numbers()
    wrong = []

    def work():
        for _ in range(3000):
            if (shared + shared)[WIDTH - 1].item() != 2 * WIDTH:
                wrong.append("a sum")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    larges = [large_from(shared) for _ in range(40)]
    for thread in threads:
        thread.join()
    return not wrong and all(rows_are(large, EXPECTED) for large in larges[:3])


def count():
    """Small and large calls, in place, of lists, with errors, views between them."""
    for _ in range(10):
        small, large = numbers(), large_from(numbers())
        torch.cat([small, large[1], small]).sum().item()
        torch._foreach_mul_([small, large], 2)
        for write in IN_PLACE.values():
            write(small)
        small.view(2, 4).t().contiguous()
        torch.zeros(WIDTH).add_(torch.empty(WIDTH).fill_(2))
        try:
            small.add(torch.ones(3))
        except RuntimeError:
            pass


def main():
    global PROBE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=("cases", "count"))
    parser.add_argument("--result", required=True, type=pathlib.Path)
    parser.add_argument("--probe")
    options = parser.parse_args()
    report = {}
    if options.program == "cases":
        PROBE = ctypes.CDLL(options.probe)
        report["cases"] = len(CASES)
        report["wrong"] = [name for name, function in CASES.items() if not function()]
    else:
        count()
    names = ("aten::add.Tensor", "aten::addmm", "aten::cat", "aten::_foreach_add_.List")
    report["kernels"] = [name for name in names
                         if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Fake")]
    options.result.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
