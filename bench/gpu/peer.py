# SPDX-License-Identifier: MIT
"""PyTorch's figures of a device, under the names and in the units of bench/gpu/ours.lua, with its sizes: python3 bench/gpu/peer.py

The hazard loop is the same hand-written training (examples/hazard_loop.lua), eager and as a CUDA graph a sample. f32 without TF32.
"""
import math
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False
DEVICE = torch.device("cuda")
ROWS, COLUMNS, SIDE, REPEATS, CALLS = 16384, 4096, 4096, 20, 1000


def seconds(fn):
    """The best of several times of fn, each of REPEATS calls, in seconds a call."""
    best = math.inf
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(REPEATS):
            fn()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / REPEATS)
    return best


def say(name, value):
    print(f"{name} {value:.6g}", flush=True)


def ramp(phase, *shape):
    return torch.sin(phase + 0.7 * torch.arange(math.prod(shape), dtype=torch.float32)).reshape(shape).to(DEVICE)


class Hazard:
    """8 inputs, 8 hidden units, 4 classes; 4 samples a batch; rate 0.05."""

    def __init__(self, count):
        self.w1, self.w2 = ramp(0.31, 8, 8), ramp(0.17, 8, 4)
        self.g1, self.g2 = torch.zeros_like(self.w1), torch.zeros_like(self.w2)
        self.loss = torch.zeros((), device=DEVICE)
        self.rows = torch.stack([ramp(0.41 + 0.07 * k, 8) for k in range(count)])
        classes = torch.tensor([(k // 4 + k % 4) % 4 for k in range(count)], device=DEVICE)
        self.targets = torch.nn.functional.one_hot(classes, 4).float()
        self.counter = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def sample(self):
        x, target = self.rows.index_select(0, self.counter), self.targets.index_select(0, self.counter)
        a = torch.tanh(x @ self.w1)
        p = torch.softmax(a @ self.w2, 1)
        dy = p - target
        self.g1 += x.t() @ ((1 - a * a) * (dy @ self.w2.t()))
        self.g2 += a.t() @ dy
        self.loss -= (p * target).sum().log()
        self.counter += 1

    def update(self):
        self.w1 -= self.g1 * 0.05
        self.w2 -= self.g2 * 0.05
        self.g1.zero_()
        self.g2.zero_()
        self.loss.zero_()

    def rate(self, sample, update, batches):
        self.counter.zero_()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(batches):
            for _ in range(4):
                sample()
            self.loss.item()
            update()
        torch.cuda.synchronize()
        return 4 * batches / (time.perf_counter() - begin)


def graph_of(fn):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph.replay


@torch.no_grad()
def main():
    x, y = torch.full((ROWS, COLUMNS), 0.5, device=DEVICE), torch.full((ROWS, COLUMNS), 0.25, device=DEVICE)
    z = torch.empty_like(x)
    size = x.numel() * 4
    weight, bias = torch.ones(COLUMNS, device=DEVICE), torch.zeros(COLUMNS, device=DEVICE)
    say("copy", 2 * size / seconds(lambda: z.copy_(x)) / 1e9)
    say("multiply", 2 * size / seconds(lambda: torch.mul(x, 2, out=z)) / 1e9)
    say("add", 3 * size / seconds(lambda: torch.add(x, y, out=z)) / 1e9)
    say("softmax", 2 * size / seconds(lambda: torch.softmax(x, 1)) / 1e9)
    say("layer_norm", 2 * size / seconds(lambda: torch.layer_norm(x, (COLUMNS,), weight, bias)) / 1e9)
    a, b = torch.full((SIDE, SIDE), 0.5, device=DEVICE), torch.full((SIDE, SIDE), 0.25, device=DEVICE)
    c = torch.empty_like(a)
    say("matmul", 2 * SIDE**3 / seconds(lambda: torch.matmul(a, b, out=c)) / 1e12)
    small, into = torch.ones(16, device=DEVICE), torch.empty(16, device=DEVICE)
    best = math.inf
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            torch.mul(small, 2, out=into)
        best = min(best, (time.perf_counter() - begin) / CALLS)
    say("launch", best * 1e6)
    loop = Hazard(20000)
    loop.rate(loop.sample, loop.update, 2)
    say("hazard_eager", loop.rate(loop.sample, loop.update, 500))
    sample, update = graph_of(loop.sample), graph_of(loop.update)
    say("hazard_captured", loop.rate(sample, update, 5000))


main()
