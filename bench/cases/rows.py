# SPDX-License-Identifier: MIT
"""Reductions and normalizations of 4096 x 1024, along its rows (dim 1) and its columns (dim 0), with new results."""

from bench.case import BEST, AtLeast, Case, integers, jax_runs, normal, numpy_runs, torch_runs

ROWS, COLUMNS = 4096, 1024


def torch_op(name):
    def make(t, p):
        import torch
        x, dim = t["x"], p["dim"] - 1
        F = torch.nn.functional
        along = x if dim == 1 else x.t()
        run = {"sum": lambda: x.sum(dim), "max": lambda: x.max(dim)[0], "softmax": lambda: x.softmax(dim), "log_softmax": lambda: x.log_softmax(dim),
               "layer_norm": lambda: F.layer_norm(along, along.shape[1:], t["w"], t["b"]),
               "cross_entropy": lambda: F.cross_entropy(along, classes)}[name]
        classes = t["c"] - 1 if "c" in t else None
        return run
    return torch_runs(make)


def jax_op(name):
    def make(t, p):
        import jax
        import jax.numpy as np
        dim = p["dim"] - 1

        def layer_norm(x, w, b):
            along = x if dim == 1 else x.T
            centred = along - along.mean(1, keepdims=True)
            return centred * jax.lax.rsqrt((centred * centred).mean(1, keepdims=True) + 1e-5) * w + b

        def cross_entropy(x, c):
            logs = jax.nn.log_softmax(x if dim == 1 else x.T, axis=1)
            return -np.take_along_axis(logs, c[:, None] - 1, 1).mean()
        fn = {"sum": lambda x: x.sum(dim), "max": lambda x: (x.max(dim), x.argmax(dim)), "softmax": lambda x: jax.nn.softmax(x, axis=dim),
              "log_softmax": lambda x: jax.nn.log_softmax(x, axis=dim), "layer_norm": layer_norm, "cross_entropy": cross_entropy}[name]
        return (fn, *t.values())
    peer = jax_runs(make)

    def values(inputs, params):  # without the index of the largest, which counts differently here
        loop, results = peer(inputs, params)
        return loop, lambda: results()[:1]
    return values


def numpy_op(name):
    return numpy_runs(lambda t, p: lambda: getattr(t["x"], name)(p["dim"] - 1))


def cases():
    for name in ("sum", "max", "softmax", "log_softmax", "layer_norm", "cross_entropy"):
        for dim in (2, 1):
            length, count = (COLUMNS, ROWS) if dim == 2 else (ROWS, COLUMNS)
            inputs = {"x": normal(ROWS, COLUMNS)}
            if name == "layer_norm":
                inputs.update(w=normal(length), b=normal(length))
            if name == "cross_entropy":
                inputs["c"] = integers(1, length, count)
            peers = {"torch": torch_op(name), "jax": jax_op(name)}
            if name == "sum":
                peers["numpy"] = numpy_op(name)
            yield Case(f"{name} 4096x1024, {'rows' if dim == 2 else 'columns'}", "rows", "rows", [AtLeast(1, BEST)], params={"op": name, "dim": dim},
                       inputs=inputs, peers=peers, atol=5e-4 if name == "sum" else 2e-5)
