# SPDX-License-Identifier: MIT
"""What one small op costs, called from the script."""

from bench.case import AtLeast, AtMost, Case, normal, numpy_runs, torch_runs

SQUARES = {"a": normal(8, 8), "b": normal(8, 8)}


def live(megabytes):
    """That much live data of the interpreter's own: rows of sixteen numbers."""
    return [[float(k + j) for j in range(16)] for k in range(megabytes * 1700)]


def torch_add(inputs, params):
    import torch
    torch.set_num_threads(1)
    a, b, add = torch.from_numpy(inputs["a"]), torch.from_numpy(inputs["b"]), torch.add
    kept = live(params.get("live", 0))

    def loop(n, kept=kept):
        for _ in range(n):
            add(a, b)
    return loop, lambda: [add(a, b).numpy()]


def numpy_add(inputs, params):
    import numpy
    a, b, add = inputs["a"], inputs["b"], numpy.add
    kept = live(params.get("live", 0))

    def loop(n, kept=kept):
        for _ in range(n):
            add(a, b)
    return loop, lambda: [add(a, b)]


def torch_into(inputs, params):
    import torch
    torch.set_num_threads(1)
    a, b, add = torch.from_numpy(inputs["a"]), torch.from_numpy(inputs["b"]), torch.add
    out = torch.empty(8, 8)

    def loop(n):
        for _ in range(n):
            add(a, b, out=out)
    return loop, lambda: [add(a, b, out=out).numpy()]


def torch_get(inputs, params):
    import torch
    x = torch.from_numpy(inputs["a"])

    def loop(n):
        for _ in range(n):
            x[1, 2]
    return loop, lambda: [x[1, 2].numpy()]


def torch_set(inputs, params):
    import torch
    x = torch.from_numpy(inputs["a"])

    def loop(n):
        for _ in range(n):
            x[1, 2] = 0.5

    def results():
        loop(1)
        return [x.numpy()]
    return loop, results


def cases():
    add = {"torch": torch_add, "numpy": numpy_add}
    yield Case("add 8x8", "eager", "add", [AtLeast(10, "torch"), AtLeast(2.5, "numpy")], inputs=SQUARES, peers=add)
    yield Case("add 8x8 beside 64 MB", "eager", "add", [AtLeast(8, "torch"), AtLeast(2, "numpy")], inputs=SQUARES, peers=add,
               params={"live": 64})
    yield Case("add 8x8 into a destination", "eager", "add_into", [AtLeast(12, "torch")], inputs=SQUARES,
               peers={"torch": torch_into, "numpy": numpy_runs(lambda t, p: _numpy_into(t))})
    yield Case("get(i, j)", "eager", "get", [AtLeast(10, "torch"), AtMost(60e-9)], inputs=SQUARES, peers={"torch": torch_get})
    yield Case("set(i, j, v)", "eager", "set", [AtLeast(10, "torch"), AtMost(60e-9)], inputs=SQUARES, peers={"torch": torch_set})
    count = ["{luajit}", "{bench}/instructions/count.lua", "{build}", "--count"]
    for name in ("add, new result", "hazard loop, functions", "hazard loop, autograd"):
        yield Case(f"stale check and pins, {name}", "eager", "", [AtLeast(0.97, "unchecked")], unit="Ir", rounds=1, commands={
            "ours": ("printed", count + [name]), "unchecked": ("printed", count + [name, "{build}/bench-work/unchecked"])})
    yield Case("require in a fresh process", "eager", "", [AtMost(10e-3), AtLeast(50, "torch")], rounds=5, commands={
        "ours": ("seconds", ["{luajit}", "{bench}/process.lua", "{build}"]),
        "torch": ("seconds", ["{python}", "-c", "import torch"]),
        "numpy": ("seconds", ["{python}", "-c", "import numpy"])})


def _numpy_into(inputs):
    import numpy
    a, b, out, add = inputs["a"], inputs["b"], numpy.empty((8, 8), "float32"), numpy.add
    return lambda: add(a, b, out=out)
