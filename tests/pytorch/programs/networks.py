# SPDX-License-Identifier: Apache-2.0
"""The networks that the tests train: real in structure, small in width.

Each network comes in two sizes. `small` is for runs in which every operator is replayed many
times; `large` has activations that outweigh the parameters, for runs inside a budget.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Network:
    """A model, its batches and its loss. `batch(index, varied)` is a function of its arguments."""

    classes = 10

    def __init__(self, large):
        self.large = large

    def model(self):
        raise NotImplementedError

    def batch(self, index, varied=False):
        raise NotImplementedError

    def scores(self, output):
        """The tensor of scores (classes last) in what the model returned."""
        return output

    def loss(self, output, target):
        return F.cross_entropy(self.scores(output).flatten(0, -2), target.flatten())

    def generator(self, index):
        return torch.Generator().manual_seed(1000 + index)


class ImageNetwork(Network):
    side_small, batch_small = 32, 2
    side_large, batch_large = 64, 16

    def batch(self, index, varied=False):
        generator = self.generator(index)
        side = self.side_large if self.large else self.side_small
        count = self.batch_large if self.large else self.batch_small
        if varied:
            side, count = side + 32 * (index % 2), count + index % 3
        images = torch.randn(count, 3, side, side, generator=generator)
        return (images,), torch.randint(self.classes, (count,), generator=generator)


class ResNet50(ImageNetwork):
    def model(self):
        from torchvision.models import resnet

        if self.large:
            return resnet.resnet50(num_classes=self.classes)
        return resnet.ResNet(resnet.Bottleneck, [3, 4, 6, 3], self.classes, width_per_group=8)


class DenseNet121(ImageNetwork):
    batch_large = 8

    def model(self):
        from torchvision.models import densenet

        if self.large:
            return densenet.DenseNet(12, (6, 12, 24, 16), 24, num_classes=self.classes)
        return densenet.DenseNet(4, (2, 3, 4, 3), 8, num_classes=self.classes)


class MobileNetV3(ImageNetwork):
    def model(self):
        from torchvision.models import mobilenetv3

        width = 0.5 if self.large else 0.25
        return mobilenetv3.mobilenet_v3_small(num_classes=self.classes, width_mult=width)


class VisionTransformer(ImageNetwork):
    side_large = 32

    def model(self):
        from torchvision.models import vision_transformer

        # Position embeddings fix the image's side; varied batches change their count only.
        return vision_transformer.VisionTransformer(
            image_size=32, patch_size=4 if self.large else 8, num_layers=6 if self.large else 2,
            num_heads=4, hidden_dim=64, mlp_dim=128, dropout=0.1, num_classes=self.classes)

    def batch(self, index, varied=False):
        (images,), target = super().batch(index, varied)
        return (images[:, :, :32, :32].contiguous(),), target


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                       nn.GroupNorm(2, outputs), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNetModel(nn.Module):
    """Four levels with skip connections: the long-lived activations that swapping likes least."""

    def __init__(self, width, classes):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip([3] + widths, widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.merge = nn.ModuleList(DoubleConv(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for level in reversed(range(len(self.up))):
            x = self.merge[level](torch.cat([skips[level], self.up[level](x)], 1))
        return self.head(x).permute(0, 2, 3, 1)


class UNet(ImageNetwork):
    classes = 4

    def model(self):
        return UNetModel(16 if self.large else 4, self.classes)

    def batch(self, index, varied=False):
        (images,), _ = super().batch(index, varied)
        target = (images.sum(1).mul(2).long() % self.classes)
        return (images,), target


class TokenNetwork(Network):
    classes = 101
    length_small, batch_small = 9, 2
    length_large, batch_large = 64, 16

    def batch(self, index, varied=False):
        length = self.length_large if self.large else self.length_small
        count = self.batch_large if self.large else self.batch_small
        if varied:
            length, count = length - 3 * (index % 3), count + index % 2
        tokens = torch.randint(self.classes, (count, length + 1), generator=self.generator(index))
        return (tokens[:, :-1].contiguous(),), tokens[:, 1:].contiguous()


class LstmModel(nn.Module):
    def __init__(self, classes, width, layers, sparse):
        super().__init__()
        self.embedding = nn.Embedding(classes, width, sparse=sparse)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True,
                            dropout=0.2)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(hidden)


class Lstm(TokenNetwork):
    sparse = False

    def model(self):
        # One layer is one operator: it takes several for a budget to have anything to choose from.
        return LstmModel(self.classes, *((64, 8) if self.large else (16, 2)), self.sparse)


class CellsModel(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width), nn.LSTMCell(width, width)])
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        states, outputs = [None, None], []
        for value in self.embedding(tokens).unbind(1):
            for index, cell in enumerate(self.cells):
                states[index] = cell(value, states[index])
                value = states[index][0]
            outputs.append(value)
        return self.head(torch.stack(outputs, 1))


class LstmCells(TokenNetwork):
    """A recurrent network a step at a time: long chains of small operators."""

    length_large, batch_large = 16, 128

    def model(self):
        return CellsModel(self.classes, 128 if self.large else 16)


class ProjectedModel(LstmModel):
    """oneDNN has none with projections: each step is a dozen operators, half of them in place."""

    def __init__(self, classes, width):
        super().__init__(classes, width, 1, False)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, proj_size=width // 2)
        self.head = nn.Linear(width // 2, classes)


class ProjectedLstm(TokenNetwork):
    length_large, batch_large = 16, 128

    def model(self):
        return ProjectedModel(self.classes, 128 if self.large else 16)


class SparseLstm(Lstm):
    sparse = True


class EncoderModel(nn.Module):
    def __init__(self, classes, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.position = nn.Parameter(torch.randn(64, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position[:tokens.shape[1]]
        return self.head(self.encoder(x))


class Encoder(TokenNetwork):
    def model(self):
        return EncoderModel(self.classes, *((64, 4) if self.large else (16, 2)))


class Gpt2(TokenNetwork):
    def model(self):
        from transformers import GPT2Config, GPT2LMHeadModel

        width, layers = (64, 4) if self.large else (16, 2)
        config = GPT2Config(
            vocab_size=self.classes, n_positions=64, n_embd=width, n_layer=layers, n_head=4,
            use_cache=False, bos_token_id=0, eos_token_id=0)
        return GPT2LMHeadModel(config)

    def scores(self, output):
        return output.logits


NETWORKS = {
    "resnet50": ResNet50, "densenet121": DenseNet121, "mobilenet_v3": MobileNetV3,
    "vit": VisionTransformer, "unet": UNet, "lstm": Lstm, "encoder": Encoder, "gpt2": Gpt2,
    "sparse_lstm": SparseLstm, "lstm_cells": LstmCells,
    "projected_lstm": ProjectedLstm,
}
