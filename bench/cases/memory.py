# SPDX-License-Identifier: MIT
"""The arena's own costs, and the peak memory of a training step."""

from bench.case import AtLeast, Case

POISON = 64 * 1024 * 1024


def memset(inputs, params):
    import ctypes
    import os

    import numpy
    fn = ctypes.CDLL(os.environ["BENCH_NATIVE"]).set
    to = numpy.empty(POISON, "uint8")
    args = [to.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(127), ctypes.c_size_t(POISON)]

    def loop(n):
        for _ in range(n):
            fn(*args)
    return loop, lambda: []


def cases():
    yield Case("reset, 1,000,000 dead blocks", "memory", "reset", [AtLeast(0.5, "ours, 10 blocks")], params={"blocks": 1000000}, rounds=5,
               engine={"arena": "1GiB"}, peers={"ours, 10 blocks": {"params": {"blocks": 10}}})
    yield Case("poison fill 64 MiB", "memory", "poison", [AtLeast(0.8, "memset")], params={"bytes": POISON}, peers={"memset": memset},
               engine={"arena": "65MiB"})
    mlp = ["{bench}/process.lua", "{build}", "networks", "mlp", "20"]
    yield Case("peak memory, MLP step", "memory", "", [AtLeast(1, "torch")], unit="MiB", rounds=3, commands={
        "ours": ("printed", ["{luajit}"] + mlp), "torch": ("printed", ["{python}", "{bench}/process.py", "20"])})
