# SPDX-License-Identifier: Apache-2.0
"""The training steps that step_bench.py and bench/allocator/step_ratio.py measure: plain PyTorch,
the same bits in every process.

`NETWORKS[name]()` builds the model and one batch; each `step()` trains on that batch once and
returns the loss.
"""

import torch
from torch import nn
from torch.nn import functional

CLASSES = 10
TOKENS = 101


class Training:
    """A model, its optimizer and a batch that stays the same, so that all steps cost the same."""

    def __init__(self, model, inputs, target, optimizer=torch.optim.SGD, repeats=1):
        self.model = model
        self.inputs = inputs
        self.target = target
        self.optimizer = optimizer(model.parameters(), lr=0.001)
        self.repeats = repeats

    def step(self):
        for _ in range(self.repeats):
            self.optimizer.zero_grad()
            scores = self.model(self.inputs)
            loss = functional.cross_entropy(scores.flatten(0, -2), self.target.flatten())
            loss.backward()
            self.optimizer.step()
        return loss.detach()


def images(count, side):
    return torch.randn(count, 3, side, side), torch.randint(CLASSES, (count,))


def sentences(count, length):
    tokens = torch.randint(TOKENS, (count, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def resnet18():
    from torchvision.models import resnet

    return Training(resnet.resnet18(num_classes=CLASSES), *images(64, 96))


def resnet50():
    from torchvision.models import resnet

    return Training(resnet.resnet50(num_classes=CLASSES), *images(16, 96))


def densenet121():
    from torchvision.models import densenet

    model = densenet.DenseNet(12, (6, 12, 24, 16), 24, num_classes=CLASSES)
    return Training(model, *images(16, 64))


def vit():
    from torchvision.models import vision_transformer

    model = vision_transformer.VisionTransformer(
        image_size=64, patch_size=8, num_layers=6, num_heads=4, hidden_dim=128, mlp_dim=256,
        dropout=0.1, num_classes=CLASSES,
    )  # fmt: skip
    return Training(model, *images(32, 64), torch.optim.AdamW)


class Lstm(nn.Module):
    """Two layers of cells, a step at a time: thousands of small operators, where oneDNN's LSTM over
    a whole sequence would be one."""

    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width), nn.LSTMCell(width, width)])
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens):
        states = [None] * len(self.cells)
        outputs = []
        for value in self.embedding(tokens).unbind(1):
            for index, cell in enumerate(self.cells):
                states[index] = cell(value, states[index])
                value = states[index][0]
            outputs.append(value)
        return self.head(torch.stack(outputs, 1))


def lstm():
    return Training(Lstm(128), *sentences(128, 32), torch.optim.Adam)


class Encoder(nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens) + self.position))


def encoder():
    return Training(Encoder(128, 4, 64), *sentences(32, 64), torch.optim.Adam)


class DecoderLayer(nn.Module):
    """Norms before attention and before the feed-forward part, as in GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width), nn.Dropout(0.1),
        )  # fmt: skip

    def forward(self, x):
        parts = self.queries_keys_values(self.attention_norm(x)).chunk(3, -1)
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)


class Decoder(nn.Module):
    def __init__(self, tokens, width, layers, length):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.Sequential(*(DecoderLayer(width, width // 64) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.norm(self.layers(self.embedding(tokens) + self.position))
        return x @ self.embedding.weight.t()  # One matrix for both ends, as in GPT-2.


def gpt():
    tokens = 8192
    text = torch.randint(tokens, (4, 257))
    model = Decoder(tokens, width=256, layers=4, length=256)
    return Training(model, text[:, :-1].contiguous(), text[:, 1:].contiguous(), torch.optim.AdamW)


def mlp():
    """Bound by operators, not by arithmetic: what a call costs is all that it shows."""
    layers = []
    for _ in range(8):
        layers += [nn.Linear(8, 8), nn.ReLU()]
    return Training(
        nn.Sequential(*layers, nn.Linear(8, CLASSES)), torch.randn(4, 8),
        torch.randint(CLASSES, (4,)), repeats=50,
    )  # fmt: skip


NETWORKS = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "densenet121": densenet121,
    "vit": vit,
    "lstm": lstm,
    "encoder": encoder,
    "gpt": gpt,
    "mlp": mlp,
}
