# SPDX-License-Identifier: Apache-2.0
"""Ways to train a network: one function a feature of PyTorch, usable with any network.

Each takes a `Job`, trains, and leaves its results in the job's report.
"""

import functools
import io

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations as parametrize

from digest import storage_bytes


class Job:
    """One training run: a network, its model, an optimizer, and the report."""

    def __init__(self, report, network, steps):
        self.report, self.network, self.steps = report, network, steps
        self.model = network.model()
        self.optimizer = None
        self.batch_bytes = 0

    def batch(self, index, varied=False):
        inputs, target = self.network.batch(index, varied)
        self.batch_bytes = max(self.batch_bytes, storage_bytes(inputs, target))
        return inputs, target

    def forward(self, index, varied=False):
        inputs, target = self.batch(index, varied)
        return self.network.loss(self.model(*inputs), target)

    def train(self, optimizer, loss=None, before_step=None, after_step=None, first=0):
        """The usual loop. `loss(index)` gives the loss; the two others are called as named."""
        self.optimizer = optimizer
        self.model.train()
        for index in range(first, first + self.steps):
            optimizer.zero_grad()
            value = (loss or self.forward)(index)
            value.backward()
            if before_step:
                before_step()
            optimizer.step()
            if after_step:
                after_step()
            self.report.add(f"loss {index}", value.item())

    def finish(self):
        state = self.optimizer.state if self.optimizer else {}
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = [dict(state[p]) for p in parameters if p in state]
        self.report.facts["floor_bytes"] = self.batch_bytes + storage_bytes(
            parameters, gradients, list(self.model.buffers()), states)
        self.report.add_model("", self.model)
        for name, parameter in self.model.named_parameters():
            for key, value in dict(state.get(parameter, {})).items():
                if isinstance(value, torch.Tensor):
                    self.report.add(f"optimizer state {key} {name}", value)
        self.report.add_random_state()


def sgd_optimizer(job):
    return torch.optim.SGD(job.model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)


def plain(job):
    """The optimizer that people use with the network; foreach and fused ones among them."""
    parameters = job.model.parameters()
    name = type(job.network).__name__
    if name == "DenseNet121":
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    elif name == "Lstm":
        optimizer = torch.optim.Adagrad(parameters, lr=1e-2)
    elif name == "Encoder":
        optimizer = torch.optim.Adam(parameters, lr=1e-3, foreach=True)
    elif name == "MobileNetV3":
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
    elif name in ("Gpt2", "VisionTransformer"):
        optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    else:
        optimizer = sgd_optimizer(job)
    job.train(optimizer)


def sgd(job):
    job.train(torch.optim.SGD(job.model.parameters(), lr=0.05, momentum=0.9, nesterov=True))


def adam_foreach(job):
    job.train(torch.optim.Adam(job.model.parameters(), lr=1e-3, foreach=True, amsgrad=True))


def adam_fused(job):
    job.train(torch.optim.Adam(job.model.parameters(), lr=1e-3, fused=True))


def adamw(job):
    optimizer = torch.optim.AdamW(job.model.parameters(), lr=1e-3, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=job.steps + 1)
    job.train(optimizer, after_step=scheduler.step)


def adagrad(job):
    job.train(torch.optim.Adagrad(job.model.parameters(), lr=1e-2, lr_decay=1e-2))


def lbfgs(job):
    job.optimizer = optimizer = torch.optim.LBFGS(
        job.model.parameters(), lr=0.1, max_iter=2, history_size=2, line_search_fn="strong_wolfe")
    job.model.train()
    for index in range(job.steps):
        def closure():
            optimizer.zero_grad()
            loss = job.forward(index)
            loss.backward()
            return loss
        job.report.add(f"loss {index}", optimizer.step(closure).item())


def clipping(job):
    def clip():
        norm = nn.utils.clip_grad_norm_(job.model.parameters(), 0.5)
        nn.utils.clip_grad_value_(job.model.parameters(), 0.01)
        job.report.add("gradient norm", norm.item())
    job.train(sgd_optimizer(job), before_step=clip)


def accumulation(job):
    def loss(index):
        for part in range(2):
            (job.forward(10 * index + part) / 3).backward()
        return job.forward(10 * index + 2) / 3
    job.train(sgd_optimizer(job), loss)


def ema(job):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    averaged = AveragedModel(
        job.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    by_hand = {name: value.detach().clone() for name, value in job.model.named_parameters()}

    def update():
        averaged.update_parameters(job.model)
        with torch.no_grad():
            for name, value in job.model.named_parameters():
                by_hand[name].lerp_(value, 0.1)
    job.train(sgd_optimizer(job), after_step=update)
    job.report.add_model("averaged ", averaged, gradients=False)
    job.report.add("averaged by hand", by_hand)


def dropout(job):
    masks = [nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2),
             nn.Dropout(0.4, inplace=True)]

    def loss(index):
        inputs, target = job.batch(index)
        output = job.network.scores(job.model(*inputs))
        for mask in masks:
            output = mask(output * 1.0)
        noise = torch.randn_like(output) * torch.rand(output.shape).bernoulli_(0.5)
        rows = F.dropout1d((output + 0.01 * noise).flatten(0, -2), 0.1)
        return F.cross_entropy(rows, target.flatten())
    job.train(sgd_optimizer(job), loss)


def batch_norm(job):
    norms = [m for m in job.model.modules() if isinstance(m, nn.BatchNorm2d)]
    for index, norm in enumerate(norms):
        norm.momentum = None if index % 2 else 0.3
    job.train(sgd_optimizer(job))
    # Evaluation uses the running statistics; training with frozen statistics goes on after it.
    job.model.eval()
    with torch.no_grad():
        job.report.add("evaluation", job.forward(77).item())
    loss = job.forward(78)
    loss.backward()
    job.optimizer.step()
    job.report.add("frozen loss", loss.item())


def autocast(job):
    def loss(index):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return job.forward(index)
    job.train(sgd_optimizer(job), loss)


def double_backward(job):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def loss(index):
        inputs, target = job.batch(index)
        with sdpa_kernel(SDPBackend.MATH):
            value = job.network.loss(job.model(*inputs), target)
            parameters = [p for p in job.model.parameters() if p.dim() > 1][:6]
            gradients = torch.autograd.grad(value, parameters, create_graph=True)
            penalty = sum(g.square().sum() for g in gradients)
        return value + 0.1 * penalty
    job.train(sgd_optimizer(job), loss)


def retain_graph(job):
    def loss(index):
        value = job.forward(index)
        value.backward(retain_graph=True)
        job.report.add("first gradients", [p.grad for p in job.model.parameters()])
        return value * 0.5
    job.train(sgd_optimizer(job), loss)


def anomaly(job):
    with torch.autograd.detect_anomaly(check_nan=True):
        job.train(sgd_optimizer(job))
        try:
            bad = torch.zeros(64, requires_grad=True)
            (bad.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            job.report.add("anomaly", "nan" in str(error))


class ScaledTanh(torch.autograd.Function):
    """Saves an output, an input and a value that is neither; checks needs_input_grad."""

    @staticmethod
    def forward(ctx, x, scale):
        y = torch.tanh(x * scale)
        ctx.save_for_backward(y, scale, x.square())
        return y

    @staticmethod
    def backward(ctx, grad):
        y, scale, square = ctx.saved_tensors
        inner = grad * (1 - y * y)
        by_x = inner * scale if ctx.needs_input_grad[0] else None
        by_scale = (inner * square.sqrt().copysign(y * scale)).sum().reshape(scale.shape)
        return by_x, by_scale


class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, amount):
        ctx.mark_dirty(x)
        ctx.kept = x.detach().clone()
        return x.add_(amount)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad + 0 * ctx.kept, None


def custom_function(job):
    scale = torch.full((1,), 0.7, requires_grad=True)

    def loss(index):
        inputs, target = job.batch(index)
        output = ScaledTanh.apply(job.network.scores(job.model(*inputs)), scale)
        rows = AddInPlace.apply(output * 2, 0.25).flatten(0, -2)
        return F.cross_entropy(rows, target.flatten())
    job.train(sgd_optimizer(job), loss)
    job.report.add("gradient of the scale", scale.grad)


def hooks(job):
    seen = []
    handles = []

    def clamp(parameter):
        parameter.grad.clamp_(-0.1, 0.1)

    for module in list(job.model.modules())[1:]:
        if not list(module.children()):
            handles.append(module.register_forward_hook(
                lambda m, i, o: seen.append(o.abs().mean()) if torch.is_tensor(o) else None))
    for parameter in list(job.model.parameters())[::3]:
        handles.append(parameter.register_hook(lambda grad: grad * 0.5))
        handles.append(parameter.register_post_accumulate_grad_hook(clamp))
    job.model.register_full_backward_pre_hook(lambda m, g: tuple(v * 2 for v in g))

    def pack(value):
        return (value.dtype, value.double() if value.dtype == torch.float32 else value.clone())

    def loss(index):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda pair: pair[1].to(pair[0])):
            return job.forward(index)
    job.train(sgd_optimizer(job), loss)
    for handle in handles:
        handle.remove()
    job.report.add("seen by hooks", seen)


def checkpointing(job):
    """Recomputes blocks of the network in the backward pass, by both implementations."""
    from torch.utils.checkpoint import checkpoint

    def wrapped(module, reentrant):
        inner = module.forward

        def forward(*args, **kwargs):
            return checkpoint(functools.partial(inner, **kwargs), *args,
                              use_reentrant=reentrant)
        return forward

    blocks = ("Bottleneck", "_DenseBlock", "InvertedResidual", "EncoderBlock", "DoubleConv",
              "TransformerEncoderLayer", "MLP", "LSTM")
    chosen = [m for m in job.model.modules() if type(m).__name__ in blocks]
    for index, module in enumerate(chosen):
        module.forward = wrapped(module, reentrant=index % 2 == 1)
    job.report.add("checkpointed blocks", len(chosen) > 0)
    job.train(sgd_optimizer(job))


def functorch(job):
    """Gradients per sample with vmap over grad, and a Jacobian-vector product."""
    from torch.func import functional_call, grad, jvp, vmap

    from torch.nn.attention import SDPBackend, sdpa_kernel

    parameters = {name: value.detach() for name, value in job.model.named_parameters()}
    buffers = dict(job.model.named_buffers())

    def loss(values, inputs, target):
        output = functional_call(job.model, (values, buffers), (inputs.unsqueeze(0),))
        return job.network.loss(output, target.unsqueeze(0))

    for index in range(job.steps):
        (inputs,), target = job.batch(index)
        with sdpa_kernel(SDPBackend.MATH):
            each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(
                parameters, inputs, target)
        parameters = {name: value - 0.05 * each[name].mean(0)
                      for name, value in parameters.items()}
        job.report.add(f"gradients per sample {index}", each)

    def along(amount):
        moved = {name: value * (1 + amount) for name, value in parameters.items()}
        with sdpa_kernel(SDPBackend.MATH):
            return loss(moved, inputs[0], target[0])
    job.report.add("directional derivative", jvp(along, (torch.zeros(()),), (torch.ones(()),)))
    job.report.add("final parameters", parameters)


def parametrizations(job):
    kinds = (parametrize.weight_norm, parametrize.spectral_norm, parametrize.orthogonal)
    modules = [m for m in job.model.modules() if type(m) in (nn.Linear, nn.Conv2d)]
    for index, module in enumerate(modules[:6]):
        kinds[index % 3](module)
    job.train(sgd_optimizer(job))
    nn.utils.parametrize.remove_parametrizations(modules[0], "weight")


def sparse_embedding(job):
    embedding = job.model.embedding
    rest = [p for p in job.model.parameters() if p is not embedding.weight]
    sparse = torch.optim.SparseAdam([embedding.weight], lr=1e-2)
    sparse.register_step_post_hook(lambda *_: embedding.weight.mul_(0.999))
    dense = torch.optim.SGD(rest, lr=0.05)
    with torch.no_grad():
        embedding.weight.mul_(1.0)

    def both():
        job.report.add("sparse gradient", embedding.weight.grad)
        with torch.no_grad():
            sparse.step()
        embedding.weight.grad = None
    job.train(dense, before_step=both)


def variable_shapes(job):
    job.steps += 2
    job.train(sgd_optimizer(job), lambda index: job.forward(index, varied=True))


def evaluation(job):
    """Evaluation between epochs: other shapes of graph, no gradients, then training again."""
    optimizer = sgd_optimizer(job)
    for epoch in range(2):
        job.train(optimizer, first=10 * epoch)
        job.model.eval()
        with torch.no_grad():
            for index in range(2):
                job.report.add(f"evaluation {epoch} {index}", job.forward(90 + index).item())


def inference_mode(job):
    job.train(sgd_optimizer(job))
    job.model.eval()
    with torch.inference_mode():
        inputs, _ = job.batch(95)
        job.report.add("inference", job.network.scores(job.model(*inputs)))


def channels_last(job):
    job.model = job.model.to(memory_format=torch.channels_last)

    def loss(index):
        (images,), target = job.batch(index)
        images = images.to(memory_format=torch.channels_last)
        return job.network.loss(job.model(images), target)
    job.train(sgd_optimizer(job), loss)


def save_resume(job):
    """Saves to a file format in memory, loads into fresh objects, goes on."""
    job.train(torch.optim.Adam(job.model.parameters(), lr=1e-3))
    file = io.BytesIO()
    torch.save({"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict(),
                "random": torch.get_rng_state()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    job.model = job.network.model()
    job.model.load_state_dict(state["model"])
    optimizer = torch.optim.Adam(job.model.parameters(), lr=1e-3)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    del state
    job.train(optimizer, first=job.steps)


FEATURES = {
    function.__name__: function for function in (
        plain, sgd, adam_foreach, adam_fused, adamw, adagrad, lbfgs, clipping, accumulation, ema,
        dropout, batch_norm, autocast, double_backward, retain_graph, anomaly, custom_function,
        hooks, checkpointing, functorch, parametrizations, sparse_embedding, variable_shapes,
        evaluation, inference_mode, channels_last, save_resume)
}
