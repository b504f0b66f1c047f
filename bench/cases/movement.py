# SPDX-License-Identifier: MIT
"""Ops that move memory: transposition, broadcasting, gathering and scattering."""

from bench.case import BEST, AtLeast, Case, integers, jax_runs, normal, numpy_runs, torch_runs


def torch_copy(t, p):
    import torch
    out, turned = torch.empty(2048, 2048), t["x"].t()
    return lambda: out.copy_(turned)


def numpy_copy(t, p):
    import numpy
    out, turned = numpy.empty((2048, 2048), "float32"), t["x"].T

    def run():
        numpy.copyto(out, turned)
        return out
    return run


def torch_add(turn):
    def make(t, p):
        import torch
        a, b = t["a"], turn(t["b"], torch.permute)
        out = torch.empty_like(a)
        return lambda: torch.add(a, b, out=out)
    return torch_runs(make)


def numpy_add(turn):
    def make(t, p):
        import numpy
        a, b = t["a"], turn(t["b"], numpy.transpose)
        out = numpy.empty_like(a)
        return lambda: numpy.add(a, b, out=out)
    return numpy_runs(make)


def jax_add(turn):
    def make(t, p):
        import jax.numpy
        return lambda a, b: a + turn(b, jax.numpy.transpose), t["a"], t["b"]
    return jax_runs(make)


def add(name, run, a, b, turn=lambda b, permute: b):
    return Case(name, "movement", run, [AtLeast(1, BEST)], inputs={"a": normal(*a), "b": normal(*b)},
                peers={"torch": torch_add(turn), "jax": jax_add(turn), "numpy": numpy_add(turn)})


def torch_gather(t, p):
    import torch
    index = t["i"] - 1
    out = torch.empty(index.shape)
    return lambda: torch.gather(t["x"], p["dim"] - 1, index, out=out)


def jax_gather(t, p):
    import jax.numpy as np
    return lambda x, i: np.take_along_axis(x, i, p["dim"] - 1, mode="clip"), t["x"], t["i"] - 1


def numpy_gather(t, p):
    import numpy
    index = t["i"] - 1
    return lambda: numpy.take_along_axis(t["x"], index, p["dim"] - 1)


def torch_scatter(t, p):
    import torch
    index = t["i"] - 1
    out = torch.empty(t["x"].shape)
    return lambda: torch.scatter_add(t["x"], p["dim"] - 1, index, t["s"], out=out)


def jax_scatter(t, p):
    import jax.numpy as np
    index = t["i"] - 1
    rows = np.arange(index.shape[0])[:, None]
    if p["dim"] == 1:
        return lambda x, i, s: x.at[i, np.arange(i.shape[1])[None, :]].add(s), t["x"], index, t["s"]
    return lambda x, i, s: x.at[rows, i].add(s), t["x"], index, t["s"]


def cases():
    yield Case("transposed copy 2048x2048", "movement", "transposed_copy", [AtLeast(1, BEST)], inputs={"x": normal(2048, 2048)}, peers={
        "torch": torch_runs(torch_copy), "jax": jax_runs(lambda t, p: (lambda x: x.T + 0, t["x"])), "numpy": numpy_runs(numpy_copy)})
    yield add("permuted add 128x256x128", "permuted_add", (128, 256, 128), (128, 128, 256), lambda b, permute: permute(b, (1, 2, 0)))
    yield add("broadcast add, row", "plain_add", (4096, 1024), (1024,))
    yield add("broadcast add, column", "plain_add", (4096, 1024), (4096, 1))
    for dim, high in ((2, 1024), (1, 4096)):
        name = "rows" if dim == 2 else "columns"
        index = {"x": normal(4096, 1024), "i": integers(1, high, 4096, 1024)}
        yield Case(f"gather 4096x1024, {name}", "movement", "gather", [AtLeast(1, BEST)], params={"dim": dim}, inputs=index, peers={
            "torch": torch_runs(torch_gather), "jax": jax_runs(jax_gather), "numpy": numpy_runs(numpy_gather)})
        yield Case(f"scatter_add 4096x1024, {name}", "movement", "scatter_add", [AtLeast(1, BEST)], params={"dim": dim},
                   inputs=dict(index, s=normal(4096, 1024)), peers={"torch": torch_runs(torch_scatter), "jax": jax_runs(jax_scatter)})
