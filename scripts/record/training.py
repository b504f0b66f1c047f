#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains every layer, loss and optimizer for 50 steps with PyTorch and records losses and final parameters for spec/nn/training_spec.lua:

    python3 scripts/record/training.py spec/nn/training.json

Parameters, inputs and targets come from formulas that the spec repeats, so the record holds results alone. What PyTorch lacks
(RMSNorm, rotary positions, SwiGLU, Lion) is written here from its papers. Everything runs in f32 on one thread."""

import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 50
torch.set_num_threads(1)


def ramp(shape, phase, scale=1.0, shift=0.0):
    n = math.prod(shape)
    return torch.tensor([shift + scale * math.sin(phase + 0.7 * i) for i in range(n)], dtype=torch.float64).reshape(shape).float()


def classes(shape, n, phase=0):
    return torch.tensor([(7 * i + 3 * phase) % n for i in range(math.prod(shape))]).reshape(shape)


def set_parameters(module):
    for k, p in enumerate(module.parameters()):
        with torch.no_grad():
            p.copy_(ramp(tuple(p.shape), 0.3 + 1.1 * k, 0.5))


class Layer(nn.Module):
    """A module of parts and a forward given as a function."""

    def __init__(self, forward, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.run = forward

    def forward(self, *inputs):
        return self.run(*self.parts, *inputs)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x):  # (.., L, D): complex multiplication of the pairs (x_i, x_(i + D / 2))
    rows, width = x.shape[-2:]
    speeds = 10000.0 ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * speeds
    turned = torch.complex(x[..., : width // 2], x[..., width // 2:]) * torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    return torch.cat([turned.real, turned.imag], -1)


class RotaryAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        batch, rows, width = x.shape
        qkv = F.linear(x, self.inner.in_proj_weight, self.inner.in_proj_bias)
        q, k, v = (t.reshape(batch, rows, self.heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
        scores = rotate(q) @ rotate(k).transpose(-1, -2) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(torch.ones(rows, rows).triu(1).bool(), -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, rows, width)
        return self.inner.out_proj(y)


class SwiGLU(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Lion:
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        self.params, self.lr, self.betas, self.decay = list(params), lr, betas, weight_decay
        self.m = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.params, self.m):
            c = self.betas[0] * m + (1 - self.betas[0]) * p.grad
            p -= self.lr * (c.sign() + self.decay * p)
            m.copy_(self.betas[1] * m + (1 - self.betas[1]) * p.grad)


def causal(rows):
    return torch.ones(rows, rows).triu(1).bool()


def padding(batch, rows):  # True is padding: the last b positions of sequence b (from 0)
    return torch.tensor([[s >= rows - b for s in range(rows)] for b in range(batch)])


X = ramp((6, 5), 0.2)
LINEAR = lambda: nn.Linear(5, 4)  # noqa: E731

# name: module, inputs, shape of the target
LAYERS = {
    "linear": (LINEAR(), [X], (6, 4)),
    "linear without bias": (nn.Linear(5, 4, bias=False), [X], (6, 4)),
    "embedding": (nn.Embedding(7, 4), [classes((3, 5), 7)], (3, 5, 4)),
    "layer norm": (Layer(lambda a, b, x: b(a(x)), LINEAR(), nn.LayerNorm(4)), [X], (6, 4)),
    "rms norm": (Layer(lambda a, b, x: b(a(x)), LINEAR(), RMSNorm(4)), [X], (6, 4)),
    "group norm": (Layer(lambda a, b, x: b(a(x)), nn.Conv1d(2, 6, 3), nn.GroupNorm(3, 6)), [ramp((2, 2, 8), 0.2)], (2, 6, 6)),
    "gelu": (Layer(lambda a, x: F.gelu(a(x)), LINEAR()), [X], (6, 4)),
    "gelu tanh": (Layer(lambda a, x: F.gelu(a(x), approximate="tanh"), LINEAR()), [X], (6, 4)),
    "silu": (Layer(lambda a, x: F.silu(a(x)), LINEAR()), [X], (6, 4)),
    "relu": (Layer(lambda a, x: F.relu(a(x)), LINEAR()), [X], (6, 4)),
    "tanh": (Layer(lambda a, x: torch.tanh(a(x)), LINEAR()), [X], (6, 4)),
    "sigmoid": (Layer(lambda a, x: torch.sigmoid(a(x)), LINEAR()), [X], (6, 4)),
    "swiglu": (SwiGLU(5, 6), [X], (6, 5)),
    "dropout in eval": (Layer(lambda a, x: F.dropout(a(x), 0.5, False), LINEAR()), [X], (6, 4)),
    "sequential and residual": (Layer(lambda n, a, b, x: x + b(F.gelu(a(n(x)))), nn.LayerNorm(5), LINEAR(), nn.Linear(4, 5)), [X], (6, 5)),
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), [ramp((2, 3, 9), 0.4)], (2, 4, 5)),
    "conv2d": (nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0)), [ramp((2, 2, 5, 6), 0.4)], (2, 3, 5, 3)),
    "conv2d with groups": (nn.Conv2d(4, 6, 3, padding=1, groups=2), [ramp((2, 4, 4, 4), 0.4)], (2, 6, 4, 4)),
    "max pool": (Layer(lambda a, x: F.max_pool2d(a(x), 2, stride=1, padding=1), nn.Conv2d(2, 3, 2)), [ramp((2, 2, 5, 5), 0.4)], (2, 3, 5, 5)),
    "mean pool": (Layer(lambda a, x: F.avg_pool2d(a(x), 2, padding=1), nn.Conv2d(2, 3, 2)), [ramp((2, 2, 5, 5), 0.4)], (2, 3, 3, 3)),
    "max pool 1d": (Layer(lambda a, x: F.max_pool1d(a(x), 3), nn.Conv1d(2, 3, 2)), [ramp((2, 2, 10), 0.4)], (2, 3, 3)),
    "mean pool 1d": (Layer(lambda a, x: F.avg_pool1d(a(x), 3, stride=2, padding=1), nn.Conv1d(2, 3, 2)), [ramp((2, 2, 10), 0.4)], (2, 3, 5)),
    "global mean pool": (Layer(lambda a, x: a(x).mean((2, 3)), nn.Conv2d(2, 3, 2)), [ramp((2, 2, 5, 5), 0.4)], (2, 3)),
    "attention": (Layer(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)), [ramp((2, 4, 8), 0.4)], (2, 4, 8)),
    "causal attention": (Layer(lambda a, x: a(x, x, x, attn_mask=causal(4))[0], nn.MultiheadAttention(8, 2, batch_first=True)),
                         [ramp((2, 4, 8), 0.4)], (2, 4, 8)),
    "attention with padding": (Layer(lambda a, x: a(x, x, x, key_padding_mask=padding(3, 5), attn_mask=causal(5))[0],
                                     nn.MultiheadAttention(8, 2, batch_first=True)), [ramp((3, 5, 8), 0.4)], (3, 5, 8)),
    "cross attention": (Layer(lambda a, x, c: a(x, c, c)[0], nn.MultiheadAttention(8, 2, batch_first=True)),
                        [ramp((2, 4, 8), 0.4), ramp((2, 3, 8), 1.4)], (2, 4, 8)),
    "attention without bias": (Layer(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 4, bias=False, batch_first=True)),
                               [ramp((2, 4, 8), 0.4)], (2, 4, 8)),
    "rotary attention": (RotaryAttention(8, 2), [ramp((2, 4, 8), 0.4)], (2, 4, 8)),
    "rnn": (Layer(lambda a, x: a(x)[0], nn.RNN(3, 4)), [ramp((5, 2, 3), 0.4)], (5, 2, 4)),
    "rnn relu": (Layer(lambda a, x: a(x)[0], nn.RNN(3, 4, nonlinearity="relu", batch_first=True)), [ramp((2, 5, 3), 0.4)], (2, 5, 4)),
    "gru": (Layer(lambda a, x: a(x)[0], nn.GRU(3, 4, num_layers=2)), [ramp((5, 2, 3), 0.4)], (5, 2, 4)),
    "lstm": (Layer(lambda a, x, h, c: torch.cat([a(x, (h, c))[0], *a(x, (h, c))[1]]), nn.LSTM(3, 4, num_layers=2)),
             [ramp((5, 2, 3), 0.4), ramp((2, 2, 4), 0.6, 0.5), ramp((2, 2, 4), 0.8, 0.5)], (9, 2, 4)),
}

TARGET = ramp((6, 4), 0.9)
UNIT = ramp((6, 4), 0.9, 0.5, 0.5)  # within 0 .. 1
LABELS = classes((6,), 4)
IGNORED = torch.where(LABELS == 2, torch.tensor(-100), LABELS)
LOSSES = {
    "cross_entropy": lambda x: F.cross_entropy(x, LABELS),
    "cross_entropy smoothed, one class ignored": lambda x: F.cross_entropy(x, IGNORED, label_smoothing=0.1),
    "cross_entropy weighted, summed": lambda x: F.cross_entropy(x, LABELS, torch.tensor([0.5, 1, 2, 1.5]), reduction="sum"),
    "mse": lambda x: F.mse_loss(x, TARGET),
    "l1": lambda x: F.l1_loss(x, TARGET),
    "huber": lambda x: F.huber_loss(x, TARGET, delta=0.3),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, UNIT),
    "bce_with_logits weighted": lambda x: F.binary_cross_entropy_with_logits(x, UNIT, pos_weight=torch.tensor([0.5, 1, 2, 1.5])),
    "kl_div": lambda x: F.kl_div(F.log_softmax(x, -1), F.softmax(TARGET, -1), reduction="batchmean"),
    "kl_div of logs": lambda x: F.kl_div(F.log_softmax(x, -1), F.log_softmax(TARGET, -1), reduction="sum", log_target=True),
    "kl_div with zeros": lambda x: F.kl_div(F.log_softmax(x, -1), F.one_hot(LABELS, 4).float(), reduction="mean"),
}

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.05),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01),
    "sgd with nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw with options": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=0.003),
    "lion with decay": lambda p: Lion(p, lr=0.003, betas=(0.85, 0.95), weight_decay=0.1),
}


def warm(steps, then):
    return lambda t: then(t) * min(1, (t + 1) / steps) if steps else then(t)


def cosine(steps, warmup, least):
    def factor(t):
        u = min(max((t - warmup) / (steps - warmup), 0), 1)
        return least + (1 - least) * (1 + math.cos(math.pi * u)) / 2
    return warm(warmup, factor)


SCHEDULES = {
    "cosine": cosine(50, 0, 0),
    "cosine with warm-up": cosine(40, 8, 0.1),
    "step": lambda t: 0.5 ** (t // 12),
    "step with warm-up": warm(5, lambda t: 0.5 ** (t // 12)),
    "warm-up": warm(20, lambda t: 1),
}


def train(module, inputs, loss_of, make=None, clip=None, schedule=None):
    set_parameters(module)
    optimizer = (make or (lambda p: torch.optim.SGD(p, lr=0.05)))(module.parameters())
    scheduler = schedule and torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(module(*inputs))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            clip(module.parameters())
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    number = lambda v: float("%.8g" % v)  # noqa: E731
    return {"losses": [number(v) for v in losses],
            "parameters": [[number(v) for v in p.detach().flatten().tolist()] for p in module.parameters()]}


def two_layers():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))


def main(path):
    mse = lambda shape: lambda y: F.mse_loss(y, ramp(shape, 0.9))  # noqa: E731
    target = lambda y: F.mse_loss(y, TARGET)  # noqa: E731
    clips = {"norm": lambda p: nn.utils.clip_grad_norm_(p, 0.1), "value": lambda p: nn.utils.clip_grad_value_(p, 0.02)}
    record = {
        "made_by": f"PyTorch {torch.__version__}",
        "steps": STEPS,
        "layers": {name: train(m, inputs, mse(shape)) for name, (m, inputs, shape) in LAYERS.items()},
        "losses": {name: train(LINEAR(), [X], loss) for name, loss in LOSSES.items()},
        "optimizers": {name: train(two_layers(), [X], target, make) for name, make in OPTIMIZERS.items()},
        "clips": {name: train(two_layers(), [X], target, None, clip) for name, clip in clips.items()},
        "schedules": {name: train(two_layers(), [X], target, OPTIMIZERS["adamw"], None, s) for name, s in SCHEDULES.items()},
    }
    with open(path, "w") as file:
        file.write(json.dumps(record, indent=0, separators=(",", ":")).replace(",\n", ", ").replace("[\n", "[").replace("\n]", "]")
                   .replace('}, "', '},\n"') + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
