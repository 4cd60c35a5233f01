# SPDX-License-Identifier: Apache-2.0
"""Runs the samples of torch's own databases of operators, modules and optimizers.

Writes one line of JSON a sample: its name and the digest of all that it computed, or the type of
what it raised. Two runs with the same arguments are comparable line by line. Before each sample
its name goes to the progress file, so that a crash can be blamed on it.

    python samples.py op --shard 0/2 --out lines.jsonl --progress now.txt
    python samples.py op --only nn.functional.linear --everything --out lines.jsonl
"""

import argparse
import json
import os
import pathlib
import sys
import time
import warnings
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch

from digest import Report, digest, tensors_in

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bfloat16, torch.bool,
          torch.float16, torch.uint8)


def number(text):
    """A repeatable number for a name (str's own hash differs from process to process)."""
    return zlib.crc32(text.encode())


class Recorder:
    """Runs named samples of the shard, writes a line for each."""

    def __init__(self, options):
        self.everything = options.everything
        self.tenth = options.tenth
        self.skip = set(options.skip)
        self.only = set(options.only)
        self.index, self.count = map(int, options.shard.split("/"))
        self.out = open(options.out, "a", encoding="utf-8", buffering=1)
        self.progress = os.open(options.progress or os.devnull, os.O_WRONLY | os.O_CREAT, 0o644)
        self.seconds = {}

    def mine(self, group):
        """Whether this shard runs a group (an operator, a module or an optimizer)."""
        if group in self.skip or (self.only and group not in self.only):
            return False
        return number("shard " + group) % self.count == self.index

    def chosen(self, name):
        return self.everything or number("choice " + name) % 10 == self.tenth

    def announce(self, group, name):
        os.pwrite(self.progress, json.dumps([group, name]).encode().ljust(500), 0)

    def run(self, group, name, function):
        self.announce(group, name)
        torch.manual_seed(number("seed " + name))
        started = time.perf_counter()
        try:
            line = {"digest": digest(function())}
        except Exception as error:  # whatever it is, the managed run must raise the same
            line = {"raised": type(error).__name__, "text": str(error)[:300]}
        self.seconds[group] = self.seconds.get(group, 0) + time.perf_counter() - started
        self.out.write(json.dumps({"group": group, "name": name, **line}) + "\n")


def differentiable(values):
    return [t for t in tensors_in(values) if t.requires_grad]


def copied(value):
    """A nest of containers whose tensors are fresh leaves."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value


def gradients(outputs, inputs):
    """Gradients of all outputs with seeded cotangents."""
    roots = [t for t in tensors_in(outputs) if t.requires_grad and t.layout == torch.strided]
    leaves = differentiable(inputs)
    if not roots or not leaves:
        return []
    cotangents = [torch.randn_like(t) for t in roots]
    return torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)


def plain_values(value):
    """What an operator returned, as containers that `digest` knows."""
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    return value


def run_sample(op, sample):
    inputs = [sample.input, list(sample.args), sample.kwargs]
    outputs = plain_values(op(sample.input, *sample.args, **sample.kwargs))
    if op.name in NOT_COMPARED:
        return [[str(t.dtype), tuple(t.shape)] for t in tensors_in(outputs)]
    outputs = sample.output_process_fn_grad(outputs)
    return [outputs, gradients(outputs, inputs)]


def run_inplace(op, sample):
    target = copied(sample.input).detach()
    op.inplace_variant(target, *sample.args, **sample.kwargs)
    return None if op.name in NOT_COMPARED else [target]


def run_out(op, sample):
    with torch.no_grad():
        first = plain_values(op(sample.input, *sample.args, **sample.kwargs))
        places = [torch.zeros_like(t) for t in tensors_in(first)]
        if not places or op.name in NOT_COMPARED:
            return None
        out = places[0] if isinstance(first, torch.Tensor) else tuple(places)
        op(sample.input, *sample.args, **sample.kwargs, out=out)
    return places


# Compared by type and shape only: the operator hands out memory that it has not written, or does
# not repeat itself without Ebbtide either.
NOT_COMPARED = {
    "empty": "uninitialised by definition",
    "empty_like": "uninitialised by definition",
    "empty_strided": "uninitialised by definition",
    "empty_permuted": "uninitialised by definition",
    "new_empty": "uninitialised by definition",
    "new_empty_strided": "uninitialised by definition",
    "resize_": "grows a tensor without writing what is new",
    "resize_as_": "grows a tensor without writing what is new",
}
if torch.__version__.startswith("2.11."):
    NOT_COMPARED["linalg.lstsq"] = "gives other bits in two plain runs of the same process"


def dtypes_of(op, everything):
    supported = [d for d in DTYPES if d in op.supported_dtypes("cpu")]
    if everything or len(supported) < 2:
        return supported
    others = supported[1:]
    return [supported[0], others[number("dtype " + op.full_name) % len(others)]]


def op_samples(recorder, op, dtype):
    """All runs of one operator with one type: plain, in place, into given outputs."""
    group = op.full_name
    differentiate = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(number(f"samples {group} {dtype}"))
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=differentiate)):
        name = f"{group} {dtype} {index}"
        if index and not recorder.chosen(name):
            continue
        recorder.run(group, name, lambda: run_sample(op, sample))
        if op.inplace_variant is not None and not sample.broadcasts_input:
            recorder.run(group, name + " in place", lambda: run_inplace(op, sample))
        if op.supports_out and (recorder.everything or not index):
            recorder.run(group, name + " out", lambda: run_out(op, sample))


def op_errors(recorder, op):
    """Calls that the operator must refuse, each followed by one that it must accept."""
    if op.error_inputs_func is None:
        return
    group = op.full_name
    for index, error in enumerate(op.error_inputs("cpu")):
        name = f"{group} error {index}"
        if not index or recorder.chosen(name):
            sample = error.sample_input
            recorder.run(group, name, lambda: plain_values(
                op(sample.input, *sample.args, **sample.kwargs)))
            recorder.run(group, name + " after it", lambda: torch.ones(33).cumsum(0))


def run_ops(recorder):
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if not recorder.mine(op.full_name):
            continue
        recorder.announce(op.full_name, f"{op.full_name}: making samples")
        for dtype in dtypes_of(op, recorder.everything):
            guarded(recorder, op.full_name, f"samples {dtype}",
                    lambda: op_samples(recorder, op, dtype))
        guarded(recorder, op.full_name, "errors", lambda: op_errors(recorder, op))


def guarded(recorder, group, what, function):
    """A database that cannot even make its samples is a result like any other."""
    try:
        function()
    except Exception as error:
        recorder.run(group, f"{group} {what}", lambda: raise_again(error))


def raise_again(error):
    raise error


def module_values(module, item, train):
    """Forward and backward through a fresh module: outputs, gradients, parameters, buffers."""
    module.train(train)
    inputs = [list(item.forward_input.args), item.forward_input.kwargs]
    outputs = plain_values(module(*item.forward_input.args, **item.forward_input.kwargs))
    leaves = [inputs, list(module.parameters())]
    return [outputs, gradients(outputs, leaves), list(module.parameters()),
            list(module.buffers())]


def run_modules(recorder):
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        group = info.formatted_name
        if not recorder.mine(group):
            continue
        for dtype in (torch.float32, torch.float64)[:2 if recorder.everything else 1]:
            for train in (True, False):
                guarded(recorder, group, f"{dtype} {train}", lambda: module_samples(
                    recorder, info, group, dtype, train))


def module_samples(recorder, info, group, dtype, train):
    torch.manual_seed(number(f"samples {group} {dtype} {train}"))
    items = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=train)
    for index, item in enumerate(items):
        name = f"{group} {dtype} train={train} {index}"
        if item.forward_input is None or (index >= 40 and not recorder.chosen(name)):
            continue

        def values():
            made = item.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype)
            return module_values(module, item, train)
        recorder.run(group, name, values)


def optimizer_values(info, item):
    """Three steps on a small network; the closure serves those that need one."""
    model = torch.nn.Sequential(
        torch.nn.Linear(11, 19), torch.nn.Tanh(), torch.nn.Linear(19, 7, bias=False))
    named = dict(model.named_parameters())
    if info.optim_cls.__name__ == "Muon":
        named = {name: p for name, p in named.items() if p.dim() == 2}
    # A differentiable step writes to its parameters inside the graph: leaves refuse that.
    differentiable_step = item.kwargs.get("differentiable", False)
    names, parameters = list(named), [p * 1 if differentiable_step else p for p in named.values()]
    optimizer = info.optim_cls(parameters, **item.kwargs)
    inputs, seen = torch.randn(13, 11), []

    def closure():
        optimizer.zero_grad()
        loss = torch.func.functional_call(model, dict(zip(names, parameters)), inputs)
        loss = loss.square().mean()
        for p, grad in zip(parameters, torch.autograd.grad(loss, parameters, retain_graph=True)):
            p.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad
        seen.append(loss.item())
        return loss

    for _ in range(3):
        optimizer.step(closure)
    states = [dict(optimizer.state[p]) for p in parameters]
    return [seen, parameters, [p.grad for p in parameters], states]


def run_optimizers(recorder):
    from torch.testing._internal import common_optimizers as optimizers

    for info in optimizers.optim_db:
        group = info.optim_cls.__name__
        if not recorder.mine(group):
            continue
        items = optimizers._get_optim_inputs_including_global_cliquey_kwargs(
            "cpu", torch.float32, info)
        for index, item in enumerate(items):
            recorder.run(group, f"{group} {index} {item.desc}",
                         lambda: optimizer_values(info, item))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", choices=("op", "module", "optimizer"))
    parser.add_argument("--shard", default="0/1", help="index/count")
    parser.add_argument("--everything", action="store_true", help="all samples and types")
    parser.add_argument("--tenth", type=int, default=0, help="which tenth of the samples")
    parser.add_argument("--skip", action="append", default=[], help="a group not to run")
    parser.add_argument("--only", action="append", default=[], help="the only groups to run")
    parser.add_argument("--out", required=True, help="a line for each sample is added here")
    parser.add_argument("--progress", help="the sample that runs now")
    parser.add_argument("--result")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    recorder = Recorder(options)
    run = {"op": run_ops, "module": run_modules, "optimizer": run_optimizers}
    run[options.database](recorder)
    report = Report()
    slowest = sorted(recorder.seconds.items(), key=lambda pair: -pair[1])[:12]
    report.facts["slowest"] = slowest
    report.write(options.result)


if __name__ == "__main__":
    main()
