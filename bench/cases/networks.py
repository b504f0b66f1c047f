# SPDX-License-Identifier: MIT
"""Whole steps: an MLP (784-256-256-10, relu, batch 64) with Adam, and a transformer block (B 8, T 128, C 256, 8 heads)."""

import time

from bench.case import BEST, AtLeast, Case, integers

SIZES, BATCH = (784, 256, 256, 10), 64
B, T, C, HEADS = 8, 128, 256, 8
BLOCK = {"ln1w": (C,), "ln1b": (C,), "wqkv": (C, 3 * C), "bqkv": (3 * C,), "wo": (C, C), "bo": (C,),
         "ln2w": (C,), "ln2b": (C,), "w1": (C, 4 * C), "b1": (4 * C,), "w2": (4 * C, C), "b2": (C,)}


def scaled(*shape):
    def make(rng):
        if len(shape) == 1:
            return rng.standard_normal(shape, dtype="float32") * 0.1
        return rng.standard_normal(shape, dtype="float32") / shape[0] ** 0.5
    return lambda rng: make(rng).astype("float32")


def mlp_inputs():
    inputs = {"x": scaled(BATCH, SIZES[0]), "c": integers(1, 10, BATCH)}
    for k in range(3):
        inputs[f"w{k + 1}"] = scaled(SIZES[k], SIZES[k + 1])
        inputs[f"b{k + 1}"] = scaled(SIZES[k + 1])
    return inputs


def torch_mlp(compiled):
    def peer(inputs, params):
        import torch
        torch.set_num_threads(1)
        t = {k: torch.from_numpy(v.copy()) for k, v in inputs.items()}
        weights = [t[f"{k}{i}"].requires_grad_() for i in (1, 2, 3) for k in "wb"]
        classes, cross_entropy = t["c"] - 1, torch.nn.functional.cross_entropy
        try:
            adam = torch.optim.Adam(weights, lr=1e-3, fused=True)
        except (TypeError, RuntimeError):  # old releases have it for CUDA alone
            adam = torch.optim.Adam(weights, lr=1e-3)

        def loss_of(x, c):
            h = torch.addmm(weights[1], x, weights[0]).relu()
            h = torch.addmm(weights[3], h, weights[2]).relu()
            return cross_entropy(torch.addmm(weights[5], h, weights[4]), c)
        forward = torch.compile(loss_of) if compiled else loss_of

        def step():
            adam.zero_grad()
            forward(t["x"], classes).backward()
            adam.step()
        return steps(step, lambda: [w.detach().numpy() for w in weights])
    return peer


def torch_steps(count):
    """Trains `count` steps on any data."""
    import numpy
    rng = numpy.random.default_rng(1)
    loop, _ = torch_mlp(False)({k: make(rng) for k, make in mlp_inputs().items()}, {})
    loop(count)


def jax_mlp(inputs, params):
    import jax
    import jax.numpy as np
    t = {k: np.asarray(v) for k, v in inputs.items()}
    names = [f"{k}{i}" for i in (1, 2, 3) for k in "wb"]

    def loss_of(w, x, c):
        h = jax.nn.relu(x @ w["w1"] + w["b1"])
        h = jax.nn.relu(h @ w["w2"] + w["b2"])
        logs = jax.nn.log_softmax(h @ w["w3"] + w["b3"])
        return -np.take_along_axis(logs, c[:, None] - 1, 1).mean()

    def step(w, m, v, k, x, c):
        g = jax.grad(loss_of)(w, x, c)
        tree = jax.tree_util.tree_map
        m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        w = tree(lambda w, m, v: w - 1e-3 * (m / (1 - 0.9 ** k)) / (np.sqrt(v / (1 - 0.999 ** k)) + 1e-8), w, m, v)
        return w, m, v, k + 1
    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    w = {k: np.array(t[k]) for k in names}
    state = [(w, {k: np.zeros_like(x) for k, x in w.items()}, {k: np.zeros_like(x) for k, x in w.items()}, np.float32(1))]

    def one():
        state[0] = compiled(*state[0], t["x"], t["c"])
        jax.block_until_ready(state[0])
    return steps(one, lambda: [state[0][0][k] for k in names])


def causal_attention(F):
    """torch's own, which old releases lack: then the same by parts."""
    def by_parts(q, k, v, is_causal):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention
    import torch
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    return by_parts


def torch_block(compiled, part="all"):
    def peer(inputs, params):
        import torch
        torch.set_num_threads(1)
        F = torch.nn.functional
        attention = causal_attention(F)
        t = {k: torch.from_numpy(v.copy()) for k, v in inputs.items()}
        leaves = [t[k].requires_grad_() for k in ("x", *BLOCK)]
        rows = B * T

        def block(x, ln1w, ln1b, wqkv, bqkv, wo, bo, ln2w, ln2b, w1, b1, w2, b2):
            h = F.layer_norm(x, (C,), ln1w, ln1b)
            qkv = torch.addmm(bqkv, h.view(rows, C), wqkv).view(B, T, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
            y = attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + torch.addmm(bo, y.transpose(1, 2).reshape(rows, C), wo).view(B, T, C)
            h = F.layer_norm(x, (C,), ln2w, ln2b)
            h = F.gelu(torch.addmm(b1, h.view(rows, C), w1))
            return x + torch.addmm(b2, h, w2).view(B, T, C)
        forward = torch.compile(block) if compiled else block

        def step():
            for leaf in leaves:
                leaf.grad = None
            forward(*leaves).backward(t["dy"])

        def products():
            """The products of the step alone, forward and both gradients."""
            a = torch.randn(rows, C), torch.randn(rows, 3 * C), torch.randn(rows, 4 * C)
            weights = (t[k].detach() for k in ("wqkv", "wo", "w1", "w2"))
            pairs = [(x, w, g) for w, (x, g) in zip(weights, ((a[0], a[1]), (a[0], a[0]), (a[0], a[2]), (a[2], a[0])))]
            outs = [(torch.empty(rows, w.shape[1]), torch.empty(rows, w.shape[0]), torch.empty(w.shape)) for _, w, _ in pairs]
            q, s = torch.randn(B * HEADS, T, C // HEADS), torch.randn(B * HEADS, T, T)
            qs, ss = torch.empty_like(q), torch.empty_like(s)

            def run():
                for (x, w, g), (y, dx, dw) in zip(pairs, outs):
                    torch.mm(x, w, out=y)
                    torch.mm(g, w.t(), out=dx)
                    torch.mm(x.t(), g, out=dw)
                for _ in range(2):
                    torch.bmm(q, q.transpose(1, 2), out=ss)
                for _ in range(4):
                    torch.bmm(s, q, out=qs)
            return run
        if part == "all":
            return steps(step, lambda: [leaf.grad.numpy() for leaf in leaves])
        run = products()
        return rest(step, run)
    return peer


def rest(step, products):
    """A loop that returns the time of the step less that of its products."""
    def timed(fn, n):
        begin = time.process_time()
        for _ in range(n):
            fn()
        return time.process_time() - begin
    return lambda n: timed(step, n) - timed(products, n), lambda: []


def jax_block(inputs, params):
    return steps(*jax_block_step(inputs))


def jax_rest(inputs, params):
    import jax
    import jax.numpy as np
    import numpy
    rng = numpy.random.default_rng(1)

    def new(*shape):
        return np.asarray(rng.standard_normal(shape, dtype="float32"))
    rows = B * T
    a, q, s = (new(rows, C), new(rows, 3 * C), new(rows, 4 * C)), new(B * HEADS, T, C // HEADS), new(B * HEADS, T, T)
    mm = jax.jit(lambda x, w, g: (x @ w, g @ w.T, x.T @ g))
    scores, values = jax.jit(lambda q: q @ q.swapaxes(1, 2)), jax.jit(lambda s, q: s @ q)
    pairs = [(a[i], np.asarray(inputs[w]), a[j]) for i, w, j in ((0, "wqkv", 1), (0, "wo", 0), (0, "w1", 2), (2, "w2", 0))]

    def products():
        jax.block_until_ready([mm(*pair) for pair in pairs] + [scores(q) for _ in range(2)] + [values(s, q) for _ in range(4)])
    step, _ = jax_block_step(inputs)
    return rest(step, products)


def jax_block_step(inputs):
    import jax
    import jax.numpy as np
    t = {k: np.asarray(v) for k, v in inputs.items()}

    def layer_norm(x, w, b):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b

    def block(x, w):
        qkv = (layer_norm(x, w["ln1w"], w["ln1b"]) @ w["wqkv"] + w["bqkv"]).reshape(B, T, 3, HEADS, C // HEADS)
        y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + y.reshape(B, T, C) @ w["wo"] + w["bo"]
        h = jax.nn.gelu(layer_norm(x, w["ln2w"], w["ln2b"]) @ w["w1"] + w["b1"], approximate=False)
        return x + h @ w["w2"] + w["b2"]
    weights = {k: t[k] for k in BLOCK}
    grads = jax.jit(lambda x, w, dy: jax.vjp(block, x, w)[1](dy))
    made = [None]

    def step():
        made[0] = jax.block_until_ready(grads(t["x"], weights, t["dy"]))
    return step, lambda: [made[0][0]] + [made[0][1][k] for k in BLOCK]


def steps(step, weights):
    def loop(n):
        for _ in range(n):
            step()

    def results():
        import numpy
        loop(1)
        return [numpy.array(w) for w in weights()]
    return loop, results


def cases():
    peers = {"torch": torch_mlp(False), "torch compiled": torch_mlp(True), "jax": jax_mlp}
    for name, run in (("eager", "mlp"), ("captured", "mlp_captured")):
        # Adam divides by the root of squares: where a gradient is nearly zero its last bits decide the step, at most lr = 1e-3
        yield Case(f"MLP step, {name}", "networks", run, [AtLeast(1.2, BEST)], inputs=mlp_inputs(), peers=peers, rtol=1e-3, atol=5e-5)
    inputs = {"x": scaled(B, T, C), "dy": scaled(B, T, C)}
    inputs.update({k: scaled(*shape) for k, shape in BLOCK.items()})
    peers = {"torch": torch_block(False), "torch compiled": torch_block(True), "jax": jax_block}
    for name, run in (("eager", "block"), ("captured", "block_captured")):
        yield Case(f"transformer block, {name}", "networks", run, [AtLeast(1, BEST)], inputs=inputs, peers=peers, rtol=1e-3, atol=2e-4)
    yield Case("transformer block, outside its products", "networks", "block_rest", [AtLeast(2, BEST)], inputs=inputs, peers={
        "torch": torch_block(False, "rest"), "torch compiled": torch_block(True, "rest"), "jax": jax_rest})
