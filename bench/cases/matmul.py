# SPDX-License-Identifier: MIT
"""Matrix products in f32, into destinations where a peer has them."""

from bench.case import BEST, AtLeast, Case, jax_runs, normal, numpy_runs, torch_runs

SQUARE = (32, 64, 128, 256, 512, 1024, 2048)
# name, shape of a, shape of b, which is a transposed view
OTHERS = (("tall 16384x64x64", (16384, 64), (64, 64), ""), ("wide 64x64x16384", (64, 64), (64, 16384), ""),
          ("deep 64x16384x64", (64, 16384), (16384, 64), ""), ("row 1x1024x1024", (1, 1024), (1024, 1024), ""),
          ("transposed A 512", (512, 512), (512, 512), "a"), ("transposed B 512", (512, 512), (512, 512), "b"),
          ("transposed A 128", (128, 128), (128, 128), "a"), ("transposed B 128", (128, 128), (128, 128), "b"),
          ("transposed B, row 1x1024x1024", (1, 1024), (1024, 1024), "b"),
          ("batched 64 of 64", (64, 64, 64), (64, 64, 64), ""), ("batched 64 of 128x32x128, transposed B", (64, 128, 32), (64, 128, 32), "b"))


def turned(inputs, params):
    return [inputs[k].swapaxes(-1, -2) if k in params["turn"] else inputs[k] for k in ("a", "b")]


def torch_matmul(t, p):
    import torch
    a, b = turned(t, p)
    out = torch.empty(*a.shape[:-1], b.shape[-1])
    return lambda: torch.matmul(a, b, out=out)


def numpy_matmul(t, p):
    import numpy
    a, b = turned(t, p)
    out = numpy.empty((*a.shape[:-1], b.shape[-1]), "float32")
    return lambda: numpy.matmul(a, b, out=out)


def jax_matmul(t, p):
    def product(a, b):
        a, b = turned({"a": a, "b": b}, p)
        return a @ b
    return product, t["a"], t["b"]


def case(name, a, b, turn, **more):
    k = max(a[-1], a[-2])
    return Case("matmul " + name, "matmul", "matmul", [AtLeast(0.97, BEST)], params={"turn": turn}, inputs={"a": normal(*a), "b": normal(*b)},
                peers={"torch": torch_runs(torch_matmul), "jax": jax_runs(jax_matmul), "numpy": numpy_runs(numpy_matmul)},
                atol=1e-5 * k ** 0.5, **more)


def cases():
    for n in SQUARE:
        yield case(str(n), (n, n), (n, n), "")
    for other in OTHERS:
        yield case(*other)
    two = case("1024, 2 threads", (1024, 1024), (1024, 1024), "", threads=2)
    two.peers["ours, 1 thread"] = {"engine": {"threads": 1}}
    two.targets = [AtLeast(1.8, "ours, 1 thread")]
    yield two
