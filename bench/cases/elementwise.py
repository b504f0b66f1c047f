# SPDX-License-Identifier: MIT
"""Elementwise ops on 16 M elements, into destinations: memory and vector arithmetic alone."""

from bench.case import BEST, AtLeast, Case, jax_runs, normal, numpy_runs, torch_runs, uniform

N = 16 * 1024 * 1024


def torch_op(name):
    def make(t, p):
        import torch
        out, args = torch.empty(N), list(t.values())
        if name == "gelu":
            fn = torch._C._nn.gelu
            return lambda: fn(args[0], out=out)
        fn = getattr(torch, name)
        return lambda: fn(*args, out=out)
    return torch_runs(make)


def numpy_op(name):
    def make(t, p):
        import numpy
        fn, out, args = getattr(numpy, {"mul": "multiply"}.get(name, name)), numpy.empty(N, "float32"), list(t.values())
        return lambda: fn(*args, out=out)
    return numpy_runs(make)


def jax_op(name):
    def make(t, p):
        import jax
        fn = {"gelu": lambda x: jax.nn.gelu(x, approximate=False), "sigmoid": jax.nn.sigmoid, "mul": jax.numpy.multiply}.get(name)
        return (fn or getattr(jax.numpy, name), *t.values())
    return jax_runs(make)


def triad(inputs, params):
    """STREAM's triad on as many floats: the same traffic as an addition."""
    import ctypes
    import os

    import numpy
    fn = ctypes.CDLL(os.environ["BENCH_NATIVE"]).triad
    a, b, c = numpy.empty(N, "float32"), inputs["a"], inputs["b"]
    args = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, c)] + [ctypes.c_float(0.5), ctypes.c_size_t(N)]

    def loop(n):
        for _ in range(n):
            fn(*args)
    return loop, lambda: []


def cases():
    for name in ("add", "mul", "exp", "tanh", "gelu", "sigmoid", "log"):
        binary = name in ("add", "mul")
        inputs = {"a": uniform(0.1, 10, N) if name == "log" else normal(N)}
        peers = {"torch": torch_op(name), "jax": jax_op(name)}
        if binary:
            inputs["b"] = normal(N)
        if name not in ("gelu", "sigmoid"):
            peers["numpy"] = numpy_op(name)
        targets = [AtLeast(1, BEST)]
        if name == "add":
            peers["triad"] = triad
            targets.append(AtLeast(0.9, "triad"))
        yield Case(f"{name} 16M", "elementwise", "elementwise", targets, params={"op": name}, inputs=inputs, peers=peers, rtol=2e-6, atol=2e-6)
        if name in ("exp", "tanh"):
            yield Case(f"{name} 16M, 2 threads", "elementwise", "elementwise", [AtLeast(1.8, "ours, 1 thread")], params={"op": name},
                       inputs=inputs, threads=2, peers={"torch": peers["torch"], "ours, 1 thread": {"engine": {"threads": 1}}}, rtol=2e-6, atol=2e-6)
