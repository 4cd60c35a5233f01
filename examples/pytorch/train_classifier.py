# SPDX-License-Identifier: Apache-2.0
"""Trains a torchvision classification model on the real scans of scikit-learn's digits data set.

The 8x8 scans are enlarged to the model's image size and repeated over three channels. Plain
PyTorch, deterministic for one seed and thread count. Prints one JSON line on stdout, progress on
stderr:

    {"model": name, "losses": [...], "seconds_per_step": x, "digest": hex}

The digest is a SHA-256 over all losses and all final parameters and buffers.
"""

import argparse
import hashlib
import inspect
import json
import statistics
import sys
import time

import sklearn.datasets
import torch
import torch.nn.functional as functional
import torchvision

CLASSES = 10
AUXILIARY_WEIGHT = 0.3
# Models that cannot take the default of 96 pixels.
IMAGE_SIDE = {"inception_v3": 299, "maxvit_t": 224, "vit_h_14": 98}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="any torchvision classification model")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", metavar="PATH", help="also write the JSON line to this file")
    arguments = parser.parse_args()
    names = torchvision.models.list_models(module=torchvision.models)
    if arguments.model not in names:
        parser.error(f"--model {arguments.model}: choose one of {', '.join(names)}")
    if arguments.batch < 2 or arguments.steps < 1:
        parser.error("--batch must be at least 2 (batch norm) and --steps at least 1")
    return arguments


def make_model(name, side):
    """The model with fresh weights and ten classes."""
    builder = torchvision.models.get_model_builder(name)
    options = {"weights": None, "num_classes": CLASSES}
    if name.startswith("vit_"):
        options["image_size"] = side
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    return torchvision.models.get_model(name, **options)


def batches(batch, steps, side, seed):
    """Yields `steps` pairs of images and labels, each scan at most once an epoch."""
    digits = sklearn.datasets.load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < batch:
            order = torch.cat([order, torch.randperm(len(images), generator=generator)])
        chosen, order = order[:batch], order[batch:]
        enlarged = functional.interpolate(
            images[chosen].unsqueeze(1), size=(side, side), mode="bilinear"
        )
        yield enlarged.repeat(1, 3, 1, 1), labels[chosen]


def loss_of(outputs, labels):
    """Cross entropy; auxiliary heads (then the output is a named tuple) count for less."""
    if isinstance(outputs, torch.Tensor):
        return functional.cross_entropy(outputs, labels)
    main, *auxiliary = [output for output in outputs if output is not None]
    loss = functional.cross_entropy(main, labels)
    for output in auxiliary:
        loss = loss + AUXILIARY_WEIGHT * functional.cross_entropy(output, labels)
    return loss


def digest_of(losses, model):
    sha = hashlib.sha256()
    for loss in losses:
        sha.update(loss.hex().encode())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        sha.update(name.encode())
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def train(arguments):
    torch.manual_seed(arguments.seed)
    side = IMAGE_SIDE.get(arguments.model, 96)
    model = make_model(arguments.model, side)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    losses, seconds = [], []
    for images, labels in batches(arguments.batch, arguments.steps, side, arguments.seed):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        print(
            f"  step {len(losses)}/{arguments.steps}: loss {losses[-1]:.4f}, {seconds[-1]:.2f} s",
            file=sys.stderr,
        )
    return {
        "model": arguments.model,
        "losses": losses,
        # The first step also pays for what the libraries set up once.
        "seconds_per_step": statistics.median(seconds[1:] or seconds),
        "digest": digest_of(losses, model),
    }


def main():
    arguments = parse_arguments()
    line = json.dumps(train(arguments))
    if arguments.result:
        with open(arguments.result, "w", encoding="utf-8") as file:
            file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
