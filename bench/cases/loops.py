# SPDX-License-Identifier: MIT
"""Loops that train sample by sample: the hazard loop (8-8-4, a batch of 4 samples) and the attention loop (6 rows of 8)."""

from bench.case import AtLeast, Case

SAMPLES, BATCH, RATE = 256, 4, 0.05


def ramp(phase, *shape):
    def make(rng):
        import numpy
        return numpy.sin(phase + 0.7 * numpy.arange(numpy.prod(shape))).astype("float32").reshape(shape)
    return make


def targets(rng):
    import numpy
    classes = numpy.arange(SAMPLES)
    return numpy.eye(4, dtype="float32")[(classes // BATCH + classes % BATCH) % 4]


HAZARD = {"x": ramp(0.41, SAMPLES, 8), "t": targets, "W1": ramp(0.31, 8, 8), "W2": ramp(0.17, 8, 4)}
ATTENTION = {"x": ramp(0.41, SAMPLES * 6, 8), "c": lambda rng: rng.integers(1, 8, SAMPLES * 6, endpoint=True),
             "Wq": ramp(0.31, 8, 8), "Wk": ramp(0.17, 8, 8), "Wv": ramp(0.59, 8, 8)}


def torch_hazard(autograd):
    def peer(inputs, params):
        import torch
        torch.set_num_threads(1)
        t = {k: torch.from_numpy(v) for k, v in inputs.items()}
        xs, ts = [t["x"][k:k + 1] for k in range(SAMPLES)], [t["t"][k:k + 1] for k in range(SAMPLES)]
        W1, W2 = t["W1"], t["W2"]
        if autograd:
            W1.requires_grad_()
            W2.requires_grad_()
            W1.grad, W2.grad = torch.zeros_like(W1), torch.zeros_like(W2)
            classes = [c.argmax(1) for c in ts]
            cross_entropy = torch.nn.functional.cross_entropy

            def batch(b):
                for k in range(b, b + BATCH):
                    y = (xs[k] @ W1).tanh() @ W2
                    cross_entropy(y, classes[k]).backward()
                with torch.no_grad():
                    W1.sub_(W1.grad, alpha=RATE)
                    W2.sub_(W2.grad, alpha=RATE)
                    W1.grad.zero_()
                    W2.grad.zero_()
        else:
            g1, g2 = torch.zeros_like(W1), torch.zeros_like(W2)

            @torch.inference_mode()
            def batch(b):
                for k in range(b, b + BATCH):
                    x = xs[k]
                    a = (x @ W1).tanh()
                    p = (a @ W2).softmax(1)
                    dy = p - ts[k]
                    dW2 = a.t() @ dy
                    dh = (1 - a * a) * (dy @ W2.t())
                    dW1 = x.t() @ dh
                    g1.add_(dW1)
                    g2.add_(dW2)
                W1.sub_(g1 * RATE)
                W2.sub_(g2 * RATE)
                g1.zero_()
                g2.zero_()
        return batches(batch, lambda: [W1.detach().numpy(), W2.detach().numpy()])
    return peer


def torch_in_place(inputs, params):
    """The loop by hand as torch's users write it when it has to be fast: nothing allocated, transposes made once, additions within the product."""
    import torch
    torch.set_num_threads(1)
    t = {k: torch.from_numpy(v) for k, v in inputs.items()}
    xs, ts = [t["x"][k:k + 1] for k in range(SAMPLES)], [t["t"][k:k + 1] for k in range(SAMPLES)]
    W1, W2 = t["W1"], t["W2"]
    g1, g2, a, y, da, dh = (torch.zeros(*shape) for shape in ((8, 8), (8, 4), (1, 8), (1, 4), (1, 8), (1, 8)))
    xts, at, W2t, mm, softmax, mul = [x.t() for x in xs], a.t(), W2.t(), torch.mm, torch.softmax, torch.mul

    @torch.inference_mode()
    def batch(b):
        for k in range(b, b + BATCH):
            mm(xs[k], W1, out=a)
            a.tanh_()
            mm(a, W2, out=y)
            softmax(y, 1, out=y)
            y.sub_(ts[k])
            mm(y, W2t, out=da)
            mul(a, a, out=dh)
            dh.neg_().add_(1)
            dh.mul_(da)
            g1.addmm_(xts[k], dh)
            g2.addmm_(at, y)
        W1.sub_(g1, alpha=RATE)
        W2.sub_(g2, alpha=RATE)
        g1.zero_()
        g2.zero_()
    return batches(batch, lambda: [W1.numpy(), W2.numpy()])


def torch_attention(inputs, params):
    import torch
    torch.set_num_threads(1)
    t = {k: torch.from_numpy(v) for k, v in inputs.items()}
    W = [t[k].requires_grad_() for k in ("Wq", "Wk", "Wv")]
    for w in W:
        w.grad = torch.zeros_like(w)
    xs, cs = [t["x"][k * 6:k * 6 + 6] for k in range(SAMPLES)], [t["c"][k * 6:k * 6 + 6] - 1 for k in range(SAMPLES)]
    cross_entropy = torch.nn.functional.cross_entropy

    def batch(b):
        for k in range(b, b + BATCH):
            x = xs[k]
            Q, K, V = x @ W[0], x @ W[1], x @ W[2]
            r = x + (Q @ K.t() / 8 ** 0.5).softmax(1) @ V
            y = r * ((r * r).mean(1, True) + 1e-5).rsqrt()
            cross_entropy(y, cs[k]).backward()
        with torch.no_grad():
            for w in W:
                w.sub_(w.grad, alpha=RATE)
                w.grad.zero_()
    return batches(batch, lambda: [w.detach().numpy() for w in W])


def jax_hazard(inputs, params):
    import jax
    import jax.numpy as np
    t = {k: np.asarray(v) for k, v in inputs.items()}

    def sample(carry, row):
        W1, W2, g1, g2 = carry
        x, target = row
        a = np.tanh(x @ W1)
        dy = jax.nn.softmax(a @ W2) - target
        dh = (1 - a * a) * (dy @ W2.T)
        return (W1, W2, g1 + np.outer(x, dh), g2 + np.outer(a, dy)), None

    def batch(W, rows):
        (W1, W2, g1, g2), _ = jax.lax.scan(sample, (*W, np.zeros_like(W[0]), np.zeros_like(W[1])), rows)
        return (W1 - RATE * g1, W2 - RATE * g2), None
    rows = (t["x"].reshape(-1, BATCH, 8), t["t"].reshape(-1, BATCH, 4))
    scan = jax.jit(lambda W, rows: jax.lax.scan(batch, W, rows)[0])
    state = [(t["W1"], t["W2"])]

    def loop(n):
        for _ in range(n):
            state[0] = scan(state[0], rows)
        jax.block_until_ready(state[0])

    def results():
        loop(1)
        import numpy
        return [numpy.asarray(w) for w in state[0]]
    return loop, results


def batches(batch, weights):
    """A loop over all the samples, and the weights after one round of it."""
    def loop(n):
        for _ in range(n):
            for b in range(0, SAMPLES, BATCH):
                batch(b)

    def results():
        loop(1)
        return weights()
    return loop, results


def cases():
    torch, autograd = {"torch": torch_hazard(False)}, {"torch": torch_hazard(True)}

    def case(name, run, targets, peers, inputs=HAZARD):
        return Case(name, "loops", run, targets, inputs=inputs, peers=peers, each=SAMPLES, rtol=1e-3, atol=1e-4)
    for way in ("functions", "methods", "destinations"):
        yield case(f"hazard loop, {way}", "hazard_" + way, [AtLeast(15, "torch")],
                   dict(torch, **{"torch in place": torch_in_place}) if way == "destinations" else torch)
    yield case("hazard loop, autograd", "hazard_autograd", [AtLeast(60, "torch")], autograd)
    jax = dict(torch, jax=jax_hazard)
    yield case("hazard loop, captured, replayed once a sample", "hazard_captured", [AtLeast(90, "torch"), AtLeast(1, "jax")], jax)
    yield case("hazard loop, captured, one replay of n", "hazard_replays", [AtLeast(110, "torch"), AtLeast(1, "jax")], jax)
    attention = {"torch": torch_attention}
    yield case("attention loop", "attention", [AtLeast(20, "torch")], attention, ATTENTION)
    yield case("attention loop, captured", "attention_captured", [AtLeast(40, "torch")], attention, ATTENTION)
