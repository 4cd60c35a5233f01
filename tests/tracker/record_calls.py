#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the operator calls of small training programs for tests/tracker/pattern.

    tests/tracker/record_calls.py FOLDER [NAME...]

needs PyTorch, torchvision and transformers, uses the CPU, and writes FOLDER/NAME.calls for each
program. A file is text:

    # comment
    s mm.default 4x8 8x2             the next signature: operator, then its tensors' sizes
    0 3 5! 7+ 4-                     a call with signature 0: reads storage 3, writes storage 5 in
                                     place, makes storage 7; afterwards storage 4 is dropped
    = 10 40                          40 calls once more, from number 10 on, counted from 0
    t kkmA...                        durations of the calls in order, a character each:
                                     'A' + q is 2 ** (q / 4) microseconds of the thread's time,
                                     so that nothing else on the machine is in it

Numbers of dropped storages are used again, lowest first, which is what makes iterations alike.
"""

import heapq
import math
import pathlib
import sys
import time

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REPEAT_LINES_MIN = 4


class CallRecorder(TorchDispatchMode):
    """Every operator call below autograd while the mode is on."""

    def __init__(self):
        super().__init__()
        self.signatures = {}
        self.lines = []
        self.quarter_octaves = []
        self._numbers = {}  # by the address of the StorageImpl
        self._alive = {}
        self._free = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        begin = time.thread_time_ns()
        result = func(*args, **kwargs)
        microseconds = (time.thread_time_ns() - begin) / 1000
        self.drop_dead()
        touched = self._touched(func, args, kwargs)
        if touched:
            inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            geometry = " ".join("x".join(map(str, t.shape)) or "1" for t in inputs)
            signature = f"{func} {geometry}".strip()
            number = self.signatures.setdefault(signature, len(self.signatures))
            self.lines.append([number, touched + self._made(result)])
            self.quarter_octaves.append(max(0, min(57, round(4 * math.log2(microseconds)))))
        return result

    def drop_dead(self):
        dead = [key for key, reference in self._alive.items() if reference.expired()]
        for key in dead:
            number = self._numbers.pop(key)
            del self._alive[key]
            heapq.heappush(self._free, number)
            self.lines[-1][1].append(f"{number}-")

    def _number(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self._numbers:
            fresh = heapq.heappop(self._free) if self._free else len(self._numbers)
            self._numbers[storage._cdata] = fresh
            self._alive[storage._cdata] = StorageWeakRef(storage)
            return fresh, True
        return self._numbers[storage._cdata], False

    def _touched(self, func, args, kwargs):
        """What the call reads, and what its schema says that it writes."""
        written, seen = {}, {}
        for i, argument in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tree_leaves(value):
                if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                    number, _ = self._number(tensor)
                    seen[number] = None
                    written[number] = written.get(number, False) or writes
        return [f"{number}!" if written[number] else f"{number}" for number in seen]

    def _made(self, result):
        made = []
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                number, fresh = self._number(tensor)
                if fresh:
                    made.append(f"{number}+")
        return made

    def text(self, title):
        out = [f"# {title}; torch {torch.__version__}, {len(self.lines)} calls"]
        out += [f"s {signature.replace('aten.', '')}" for signature in self.signatures]
        out += compact([f"{number} {' '.join(touched)}" for number, touched in self.lines])
        codes = "".join(chr(ord("A") + q) for q in self.quarter_octaves)
        out += [f"t {codes[i : i + 96]}" for i in range(0, len(codes), 96)]
        return "\n".join(out) + "\n"


def compact(lines):
    """Lines seen before, in the same order, become references."""
    out, places, i = [], {}, 0
    while i < len(lines):
        key = tuple(lines[i : i + REPEAT_LINES_MIN])
        first, count = places.get(key), 0
        if first is not None:
            while i + count < len(lines) and lines[first + count] == lines[i + count]:
                count += 1
        if count >= REPEAT_LINES_MIN:
            out.append(f"= {first} {count}")
        else:
            out.append(lines[i])
            count = 1
        for j in range(i, i + count):
            places[tuple(lines[j : j + REPEAT_LINES_MIN])] = j
        i += count
    return out


def train(model, optimizer, loss_of):
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def resnet18_train_eval():
    """Three epochs of six training steps and four of evaluation."""
    from torchvision.models import resnet18

    model = resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    target = torch.randint(10, (4,))

    def loss_of(model):
        return functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), target)

    for _ in range(3):
        model.train()
        for _ in range(6):
            train(model, optimizer, loss_of)
        model.eval()
        with torch.no_grad():
            for _ in range(4):
                loss_of(model)


def gpt2_two_lengths():
    """Sentences of 32 and of 48 tokens in an order without a rule."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=101, n_positions=64, n_embd=32, n_layer=3, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    for length in (32, 48, 48, 32, 32, 48, 32, 32, 32, 48, 32, 48, 48, 48, 32, 48, 32, 32, 48, 32):
        tokens = torch.randint(101, (2, length))
        train(model, optimizer, lambda m, t=tokens: m(input_ids=t, labels=t).loss)


def gan_alternating():
    """Two steps of the discriminator for each of the generator."""
    generator = nn.Sequential(
        nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Unflatten(1, (4, 4, 4)),
        nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    discriminator = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(256, 1),
    )  # fmt: skip
    generator_optimizer = torch.optim.Adam(generator.parameters())
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters())
    loss = functional.binary_cross_entropy_with_logits
    ones, zeros = torch.ones(4, 1), torch.zeros(4, 1)
    for step in range(30):
        noise = torch.randn(4, 8)
        if step % 3 < 2:
            real, fake = torch.randn(4, 1, 16, 16), generator(noise).detach()
            discriminator_optimizer.zero_grad()
            (loss(discriminator(real), ones) + loss(discriminator(fake), zeros)).backward()
            discriminator_optimizer.step()
        else:
            generator_optimizer.zero_grad()
            loss(discriminator(generator(noise)), ones).backward()
            generator_optimizer.step()


def accumulation_of_four():
    """Four micro-steps for each step of the optimizer."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(8):
        optimizer.zero_grad()
        for _ in range(4):
            model(torch.randn(2, 12, 32)).square().mean().div(4).backward()
        optimizer.step()


def lstm_cells():
    """Two layers of cells over twelve steps of time, in plain operators."""
    cells = nn.ModuleList([nn.LSTMCell(16, 16), nn.LSTMCell(16, 16)])
    head = nn.Linear(16, 5)
    optimizer = torch.optim.SGD([*cells.parameters(), *head.parameters()], lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        states, loss = [None, None], 0
        inputs, target = torch.randn(12, 4, 16), torch.randint(5, (4,))
        for x in inputs:
            for layer, cell in enumerate(cells):
                states[layer] = cell(x, states[layer])
                x = states[layer][0]
            loss = loss + functional.cross_entropy(head(x), target)
        loss.backward()
        optimizer.step()


PROGRAMS = [
    resnet18_train_eval,
    gpt2_two_lengths,
    gan_alternating,
    accumulation_of_four,
    lstm_cells,
]


def main():
    folder = pathlib.Path(sys.argv[1])
    for program in PROGRAMS:
        if len(sys.argv) > 2 and program.__name__ not in sys.argv[2:]:
            continue
        torch.manual_seed(0)
        torch.set_num_threads(1)
        with CallRecorder() as recorder:
            program()
        title = f"{program.__name__}: {program.__doc__.strip().rstrip('.')}"
        (folder / f"{program.__name__}.calls").write_text(recorder.text(title))


if __name__ == "__main__":
    main()
