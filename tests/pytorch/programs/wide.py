# SPDX-License-Identifier: Apache-2.0
"""Trains a deep perceptron whose activations dwarf its parameters (about 400 MB at the peak)."""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

from digest import Report, storage_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--result")
    options = parser.parse_args()
    torch.manual_seed(5)
    layers = []
    for _ in range(16):
        layers += [nn.Linear(96, 96), nn.ReLU(), nn.LayerNorm(96)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    report = Report()
    for index in range(2):
        batch = torch.randn(20000, 96, generator=torch.Generator().manual_seed(index))
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        report.add(f"loss {index}", loss.item())
    states = [dict(optimizer.state[p]) for p in model.parameters()]
    gradients = [p.grad for p in model.parameters()]
    report.facts["floor_bytes"] = storage_bytes(
        batch, list(model.parameters()), gradients, states)
    report.add_model("", model)
    report.add_random_state()
    report.write(options.result)


if __name__ == "__main__":
    main()
