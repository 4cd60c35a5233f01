# SPDX-License-Identifier: Apache-2.0
"""Programs in which something goes wrong and that go on, or end, as PyTorch says.

    python errors.py throwing --result result.json
"""

import argparse
import ctypes
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

from digest import Report, digest

MIB = 1 << 20


def network():
    torch.manual_seed(3)
    return nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.LayerNorm(96))
                           for _ in range(6)])


def step(model, optimizer, index):
    inputs = torch.randn(512, 96, generator=torch.Generator().manual_seed(index))
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def throwing(report):
    """Operators refuse their arguments; what they were given and the next call are unharmed."""
    base = torch.arange(6000.0).reshape(60, 100)
    left, right = base.sin(), base.cos()
    attempts = (
        lambda: left @ right, lambda: torch.cat([left, right[:, :7]]),
        lambda: left.reshape(7, 7), lambda: left.index_select(0, torch.tensor([99])),
        lambda: left.add_(right[:, :3]), lambda: torch.add(left, right[:3], out=right),
        lambda: torch.linalg.inv(torch.zeros(40, 40)), lambda: left[70],
        lambda: nn.functional.conv2d(left, right),
        lambda: torch.linalg.cholesky(-torch.eye(50)),
        lambda: left.scatter_(0, torch.full((1, 100), 1000), 1.0),
        lambda: nn.functional.nll_loss(left, torch.full((60,), 100)),
        lambda: torch._foreach_add([left, right], [right]))
    for repetition in range(2):
        for number, attempt in enumerate(attempts):
            try:
                attempt()
                report.add(f"attempt {number}", "no error")
            except Exception as error:
                report.add(f"attempt {number} {repetition}", type(error).__name__)
            report.add(f"after attempt {number} {repetition}",
                       [left, right, left @ right.T, left.T @ right])


class Refuses(torch.autograd.Function):
    """Fails in the backward pass the first time."""

    refuse = True

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if Refuses.refuse:
            raise ValueError("not now")
        return grad * 2


def throwing_backward(report):
    model = network()
    inputs = torch.randn(64, 96)
    loss = model[3:](Refuses.apply(model[:3](inputs))).square().mean()
    try:
        loss.backward(retain_graph=True)
    except ValueError as error:
        report.add("first try", str(error))
    Refuses.refuse = False
    for parameter in model.parameters():
        parameter.grad = None
    loss.backward()
    report.add_model("", model)


class Interrupts:
    """SIGINT raises KeyboardInterrupt while armed, once; the handler is an ordinary one."""

    def __init__(self):
        self.armed, self.raised = False, 0
        signal.signal(signal.SIGINT, self.handle)

    def handle(self, number, frame):
        if self.armed:
            self.armed = False
            self.raised += 1
            raise KeyboardInterrupt


@torch.library.custom_op("ebbtide_test::slow_double", mutates_args=())
def slow_double(x: torch.Tensor) -> torch.Tensor:
    """Python code in an operator: the one place where a signal can strike inside a rebuild."""
    for _ in range(2000):
        pass
    return x * 2


torch.library.register_autograd(
    "ebbtide_test::slow_double", lambda ctx, grad: slow_double(grad))


class SlowDouble(nn.Module):
    def forward(self, x):
        return slow_double(x)


def interrupted(report):
    """Trains under bursts of SIGINT: a step that was cut short is done again from a copy."""
    model = nn.Sequential(*[layer for block in network() for layer in (block, SlowDouble())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    interrupts = Interrupts()
    print("ready", file=sys.stderr, flush=True)
    losses = []
    while len(losses) < 12:
        before = [p.detach().clone() for p in model.parameters()]
        try:
            interrupts.armed = True
            loss = step(model, optimizer, len(losses))
            interrupts.armed = False
            losses.append(loss)
        except KeyboardInterrupt:
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), before):
                    parameter.copy_(value)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report.facts["interrupts"] = interrupts.raised
    report.add("losses", losses)
    report.add_model("", model)


def out_of_memory(report):
    """Asks for more than any budget of the test, is refused, frees, goes on."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report.add("before", step(model, optimizer, 0))
    kept = []
    try:
        for _ in range(64):
            kept.append(torch.empty(8 * MIB, dtype=torch.uint8).random_(0, 255).numpy())
        report.facts["refused"] = ""
    except RuntimeError as error:
        report.facts["refused"] = f"{type(error).__module__}.{type(error).__name__}"
        report.facts["is_out_of_memory"] = isinstance(error, torch.OutOfMemoryError)
        report.facts["text"] = str(error)
    report.facts["blocks_before_refusal"] = len(kept)
    kept.clear()
    try:
        torch.empty(1 << 40, dtype=torch.uint8)
    except RuntimeError as error:
        report.facts["huge"] = type(error).__name__
    again = torch.full((8 * MIB,), 3, dtype=torch.uint8)
    report.add("after freeing", again)
    report.add("training goes on", [step(model, optimizer, index) for index in range(1, 4)])
    report.add_model("", model)


def uncaught(report):
    """Ends with an exception that nobody catches."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(3):
        step(model, optimizer, index)
    raise ValueError("the program's own")


def leaves_by_exit(report):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer, 0)
    sys.exit(7)


def trains(report):
    """Nothing goes wrong here; the options given to Ebbtide may be wrong."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(3):
        report.add(f"loss {index}", step(model, optimizer, index))
    report.add_model("", model)


def own_operators(report):
    """Operators of the program's own, in Python and in C++, that differ each time they run."""
    ticks = [0]

    @torch.library.custom_op("ebbtide_test::python_ticking", mutates_args=())
    def python_ticking(x: torch.Tensor) -> torch.Tensor:
        ticks[0] += 1
        return x + ticks[0]

    torch.ops.load_library(os.environ["TICKING_LIBRARY"])
    operators = torch.ops.ebbtide_test
    start = torch.zeros(64, 64) + 0.5
    values = [operator(start * 2) for operator in
              (python_ticking, operators.ticking, operators.raw_ticking, operators.raw_ticking)]
    for index in range(4):
        torch.full((64, 64), float(index)).exp()
    report.add("sums", [value.sum().item() for value in values])
    report.add("values", values)


def restless(report):
    """An operator in torch's own namespace that gives other bytes each time it runs."""
    library = torch.library.Library("aten", "FRAGMENT")
    library.define("ebbtide_restless(Tensor x) -> Tensor")
    runs = []

    def kernel(x):
        runs.append(len(runs))
        return x + len(runs)

    library.impl("ebbtide_restless", kernel, "CPU")
    out = torch.ops.aten.ebbtide_restless(torch.ones(1000))
    report.add("sum", out.sum())


def foreign_write(offset, released):
    """Writes four bytes as a faulty extension would: near a tensor, or into a released one."""
    tensor = torch.arange(1000.0)
    address = tensor.data_ptr()
    if released:
        del tensor
    ctypes.memset(address + offset, 7, 4)


def writes_past_the_end(report):
    foreign_write(4000, released=False)
    report.add("went on", True)


def writes_before_the_start(report):
    foreign_write(-4, released=False)
    report.add("went on", True)


def writes_to_a_released_tensor(report):
    foreign_write(400, released=True)
    report.add("went on", True)


def writes_past_a_global(report):
    """The tensor lives until the process ends."""
    globals()["kept"] = torch.arange(1000.0)
    ctypes.memset(kept.data_ptr() + 4000, 7, 4)
    report.add("went on", True)


def nothing(report):
    """Imports torch and ends."""
    report.add("version", torch.__version__)


def waits(report):
    """Ends by a signal, in the middle of the work."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print("ready", file=sys.stderr, flush=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        step(model, optimizer, 0)


def closed_descriptors(report):
    """Daemon-like: stdin, stdout and stderr are closed before and while it trains."""
    for descriptor in range(3):
        os.close(descriptor)
    trains(report)


def deep_chain(report):
    """A chain of 40,000 operators whose end is read long after it was computed."""
    value = first = torch.linspace(0, 1, 32)
    for index in range(20000):
        value = value * 0.999 + 0.001
    other = first
    for _ in range(60000):
        other = other.neg()
    report.add("last", value)
    report.add("digest of the first", digest(first))


PROGRAMS = (throwing, throwing_backward, interrupted, out_of_memory, uncaught, leaves_by_exit,
            restless, trains, own_operators, nothing, waits, closed_descriptors, deep_chain,
            writes_past_the_end, writes_before_the_start, writes_to_a_released_tensor,
            writes_past_a_global)


def main():
    programs = {function.__name__: function for function in PROGRAMS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=sorted(programs))
    parser.add_argument("--result")
    options = parser.parse_args()
    report = Report()
    programs[options.program](report)
    report.write(options.result)


if __name__ == "__main__":
    main()
