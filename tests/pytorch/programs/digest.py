# SPDX-License-Identifier: Apache-2.0
"""What a program reports about itself: a named digest of every quantity that must not change.

A report is an ordered list of (name, SHA-256), so that two runs can be compared by the first
quantity in which they differ, and a single digest over the list.
"""

import hashlib
import json
import struct

import torch


def tensor_bytes(tensor):
    """The bytes of a tensor's elements in row-major order, preceded by its type and shape."""
    tensor = tensor.detach()
    head = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}".encode()
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return head + tensor_bytes(tensor.indices()) + tensor_bytes(tensor.values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return head + b"".join(tensor_bytes(part) for part in parts)
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
        return head + b"".join(tensor_bytes(part) for part in parts)
    if tensor.is_nested:
        return head + b"".join(tensor_bytes(part) for part in tensor.unbind())
    if tensor.is_quantized:
        return head + tensor_bytes(tensor.dequantize())
    # The copy is what numpy sees, so that no storage of the program escapes into numpy.
    copy = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return head + copy.reshape(-1).view(torch.uint8).numpy().tobytes()


def feed(hasher, value):
    """Adds any nest of tensors, numbers, strings and containers to a hash, in a fixed order."""
    if isinstance(value, torch.Tensor):
        hasher.update(tensor_bytes(value))
    elif isinstance(value, dict):
        for key in value:
            hasher.update(repr(key).encode())
            feed(hasher, value[key])
    elif isinstance(value, (list, tuple)):
        hasher.update(str(len(value)).encode())
        for item in value:
            feed(hasher, item)
    elif isinstance(value, float):
        hasher.update(struct.pack("<d", value))
    else:
        hasher.update(f"{type(value).__name__} {value}".encode())


def digest(value):
    hasher = hashlib.sha256()
    feed(hasher, value)
    return hasher.hexdigest()


class Report:
    """Collects the quantities of one run; `write` stores them as JSON."""

    def __init__(self):
        self.records = []
        self.facts = {}

    def add(self, name, value):
        shown = f"{value:.9g}" if isinstance(value, float) else ""
        self.records.append((name, digest(value), shown))

    def add_model(self, prefix, model, gradients=True):
        for name, parameter in model.named_parameters():
            if gradients and parameter.grad is not None:
                self.add(f"{prefix}gradient {name}", parameter.grad)
        for name, parameter in model.named_parameters():
            self.add(f"{prefix}parameter {name}", parameter)
        for name, buffer in model.named_buffers():
            self.add(f"{prefix}buffer {name}", buffer)

    def add_random_state(self):
        self.add("random state", torch.get_rng_state())

    def write(self, path):
        whole = hashlib.sha256()
        for name, value, _ in self.records:
            whole.update(f"{name} {value}\n".encode())
        data = {"digest": whole.hexdigest(), "records": self.records, **self.facts}
        text = json.dumps(data)
        if path:
            with open(path, "w", encoding="utf-8") as out:
                out.write(text + "\n")
        else:
            del data["records"]
            print(text if len(text) < 2000 else json.dumps(data))


def tensors_in(value):
    """All tensors in a nest of containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def storage_bytes(*values):
    """Bytes of all distinct storages behind the dense tensors in `values`."""
    sizes = {}
    for tensor in tensors_in(list(values)):
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())
