# SPDX-License-Identifier: Apache-2.0
"""One side of step_bench.py: builds a network, then trains a step whenever it is asked to.

usage: step_worker.py NETWORK THREADS

Reads one command a line from stdin, answers with one line of JSON on stdout, ends with stdin:
    step     {"wall": seconds, "cpu": seconds of all threads}
    digest   {"digest": SHA-256 over all losses and the final parameters and buffers}
The first line, {"torch": version}, says that it is ready. Plain PyTorch: nothing here knows of
Ebbtide.
"""

import hashlib
import json
import os
import struct
import sys
import time

import torch

import step_networks


def answer(out, **facts):
    out.write(json.dumps(facts) + "\n")
    out.flush()


def digest(losses, model):
    hasher = hashlib.sha256(struct.pack(f"<{len(losses)}d", *losses))
    for name, tensor in model.state_dict().items():
        hasher.update(name.encode())
        hasher.update(tensor.detach().contiguous().numpy().tobytes())
    return hasher.hexdigest()


def main(network, threads):
    # What a library prints on stdout must not be taken for an answer.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    training = step_networks.NETWORKS[network]()
    losses = []
    answer(out, torch=torch.__version__)
    for line in sys.stdin:
        if line.strip() == "step":
            wall, cpu = time.perf_counter(), time.process_time()
            loss = training.step()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            losses.append(loss.item())
            answer(out, wall=wall, cpu=cpu)
        elif line.strip() == "digest":
            answer(out, digest=digest(losses, training.model))
        else:
            sys.exit(f"step_worker.py: no such command: {line!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
