# SPDX-License-Identifier: MIT
"""What a case is: a name, inputs, a Lua family that runs it here, peers that run it there, and targets.

Every side gives two functions: loop(n) does the work n times (and may return the seconds of the part that counts), results() does it
once and returns what it made. Invariant: a case is timed only after its results agreed with the reference peer's.
"""

from dataclasses import dataclass, field
from typing import Callable, Optional

BEST = "best"


@dataclass(frozen=True)
class AtLeast:
    """We are at least `factor` times as fast as `peer` (BEST: the fastest of the case's peers)."""
    factor: float
    peer: str

    def __str__(self):
        return f">= {self.factor:g} x {self.peer}"


@dataclass(frozen=True)
class AtMost:
    """A run of ours takes at most `value` of the case's unit."""
    value: float

    def __str__(self):
        return f"<= {self.value:g}"


@dataclass
class Case:
    """`unit`: s (seconds a run), or what the case's sides return instead: MB, instructions, share.
    `inputs`: name -> function of a numpy Generator that gives an array. `peers`: name -> function (inputs, params) -> (loop, results),
    whose name up to a blank is the library that it needs ("torch compiled" needs torch); a peer that starts with "ours" is another run
    of this engine: its params and engine options replace ours. `commands`: in place of workers, whole processes."""
    name: str
    family: str
    run: str
    targets: list
    params: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)
    peers: dict = field(default_factory=dict)
    engine: dict = field(default_factory=dict)
    rtol: float = 1e-4
    atol: float = 1e-5
    unit: str = "s"
    each: float = 1.0          # runs of the loop's body that one run stands for, e.g. samples
    threads: int = 1
    rounds: int = 7
    commands: Optional[dict] = None
    compare: Optional[Callable] = None


def normal(*shape):
    """Normally distributed f32."""
    return lambda rng: rng.standard_normal(shape, dtype="float32")


def uniform(low, high, *shape):
    """Evenly distributed f32 of low .. high."""
    return lambda rng: (rng.random(shape, dtype="float32") * (high - low) + low).astype("float32")


def integers(low, high, *shape):
    """i64 of low .. high, both included."""
    return lambda rng: rng.integers(low, high, shape, dtype="int64", endpoint=True)


def torch_runs(make):
    """A torch peer of make(tensors, params) -> a function without arguments that returns a tensor or a tuple."""
    def peer(inputs, params):
        import torch
        torch.set_num_threads(params["threads"])
        return _runs(make({k: torch.from_numpy(v) for k, v in inputs.items()}, params), lambda t: t.detach().numpy(), None)
    return peer


def numpy_runs(make):
    """A numpy peer, made alike."""
    def peer(inputs, params):
        import numpy
        return _runs(make(inputs, params), numpy.asarray, None)
    return peer


def jax_runs(make):
    """A jax peer: make gives a function and its arguments, which is compiled; a run ends when its result is there."""
    def peer(inputs, params):
        import jax
        import numpy
        fn, *args = make({k: jax.numpy.asarray(v) for k, v in inputs.items()}, params)
        compiled = jax.jit(fn)
        return _runs(lambda: compiled(*args), numpy.asarray, jax.block_until_ready)
    return peer


def _runs(fn, to_array, wait):
    if wait is None:
        def loop(n):
            for _ in range(n):
                fn()
    else:
        def loop(n):
            for _ in range(n):
                wait(fn())

    def results():
        made = fn()
        return [to_array(t) for t in (made if isinstance(made, (tuple, list)) else (made,))]
    return loop, results
