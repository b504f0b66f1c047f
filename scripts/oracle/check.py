#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays oracle bundles in PyTorch:  check.py DIR [--report FILE] [--record FOLDER]

DIR is what `perilune oracle export DIR` wrote. Every case is computed by PyTorch twice: as it is, for the result's dtype, and with all floats
in double, for its values and gradients. Both sides are compared and a line per op and the totals are printed; the exit status is 0 iff all
agree. --report writes that as JSON; --record keeps the inputs and PyTorch's side (torch.json, torch.bin) for `perilune oracle compare`.
"""
import argparse
import json
import math
import os
import platform
import sys

import numpy
import torch
import torch.nn.functional as F

NUMPY = {"f32": "<f4", "f64": "<f8", "i64": "<i8", "i32": "<i4", "u8": "<u1", "bool": "<u1"}
TORCH = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
NAMES = {t: n for n, t in TORCH.items()}


def dim(d, given=None):
    """A 1-based dimension as PyTorch counts."""
    if d is None:
        return given
    if isinstance(d, list):
        return [dim(one) for one in d]
    return d - 1 if d > 0 else d


def listed(v):
    return v if isinstance(v, list) else [v]


def like(x, dtype):
    """The dtype that a case asks for: f32 stands for double where doubles are computed."""
    t = TORCH[dtype]
    return torch.float64 if x.wide and t == torch.float32 else t


def reduced(fn):
    def run(a):
        x, dims, keep = a["x"], a["dims"], bool(a["keepdim"])
        if dims is None:
            dims = list(range(1, x.dim() + 1))
        return fn(x, [d for d in dim(listed(dims))], keep, a)
    return run


def one_by_one(fn, finish=lambda x: x):
    """A reduction that PyTorch has for one dimension only, over several."""
    def over(x, dims, keep, a):
        if x.dim() == 0:
            return finish(fn(x.reshape(1), 0, False))
        for d in sorted((d % x.dim() for d in dims), reverse=True):
            x = fn(x, d, keep)
        return finish(x)
    return over


def extreme(name):
    def run(a):
        x, fn = a["x"], getattr(torch, name)
        if a["dim"] is None:
            return fn(x)
        values, indices = fn(x, dim(a["dim"]), bool(a["keepdim"]))
        return values, indices + 1
    return run


def argextreme(name):
    def run(a):
        fn = getattr(torch, name)
        return (fn(a["x"]) if a["dim"] is None else fn(a["x"], dim(a["dim"]), bool(a["keepdim"]))) + 1
    return run


def cross_entropy(a):
    x, target, weight = a["x"], a["target"], a["weight"]
    classes = not target.is_floating_point()
    if classes:
        target = target.long() - 1
    ignored = a["ignore_index"]
    if weight is not None and weight.requires_grad:  # PyTorch's own has no derivative for it
        return weighted_cross_entropy(x, target, weight, -100 if ignored is None else ignored - 1, a["reduction"] or "mean", a["label_smoothing"] or 0.0)
    return F.cross_entropy(x, target, weight, ignore_index=-100 if ignored is None else ignored - 1, reduction=a["reduction"] or "mean",
                           label_smoothing=a["label_smoothing"] or 0.0)


def weighted_cross_entropy(x, target, weight, ignored, reduction, smoothing):
    """F.cross_entropy's formula for classes in dim 2 of x, differentiable in the weights."""
    logs = torch.log_softmax(x, 1)
    if target.is_floating_point():
        w = weight.reshape(1, -1, *[1] * (x.dim() - 2))
        q = target * (1 - smoothing) + smoothing / x.shape[1]
        loss = -(q * w * logs).sum(1)
        return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    kept = target != ignored
    safe = torch.where(kept, target, torch.zeros_like(target))
    w = weight[safe] * kept
    picked = -logs.gather(1, safe.unsqueeze(1)).squeeze(1) * w
    smooth = -(logs * weight.reshape(1, -1, *[1] * (x.dim() - 2))).sum(1) * kept / x.shape[1]
    loss = (1 - smoothing) * picked + smoothing * smooth
    return loss.sum() / w.sum() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def group_norm(a):
    x, weight, bias = a["x"], a["weight"], a["bias"]
    if weight is None and bias is not None:
        weight = torch.ones_like(bias)
    return torch.group_norm(x, a["groups"], weight, bias, a["eps"] or 1e-5)  # F.group_norm refuses groups of one value


def mod(a):
    x, y = a["a"], a["b"]
    if torch.is_tensor(y) and y.requires_grad:  # PyTorch's own has no derivative for the divisor
        return x - y * torch.floor(x / y).detach()
    return torch.remainder(x, y)


def scatter_add(a):
    src = a["src"][tuple(slice(0, n) for n in a["index"].shape)]  # its derivative wants them of one shape
    return torch.scatter_add(a["x"], dim(a["dim"]), a["index"].long() - 1, src)


def rms_norm(a):
    x, shape = a["x"], listed(a["normalized_shape"])
    y = x * torch.rsqrt((x * x).mean(tuple(range(-len(shape), 0)), True) + (a["eps"] or 1e-5))
    return y if a["weight"] is None else y * a["weight"]


def sdpa(a):
    q, k, v = a["q"], a["k"], a["v"]
    scale = a["scale"] if a["scale"] is not None else 1 / math.sqrt(q.shape[-1] or 1)
    scores = q.matmul(k.transpose(-2, -1)) * scale
    n, m = scores.shape[-2:]
    keep = torch.ones(n, m, dtype=torch.bool)
    if a["mask"] is not None:
        if a["mask"].dtype == torch.bool:
            keep = keep & a["mask"]
        else:
            scores = scores + a["mask"]
    if a["causal"]:
        keep = keep & torch.ones(n, m, dtype=torch.bool).tril()
    keep = keep.expand(scores.shape)
    weights = torch.nan_to_num(torch.softmax(scores.masked_fill(~keep, -math.inf), -1))
    return weights.matmul(v)


def hadamard(a):
    x = a["x"]
    n, h = x.shape[-1], torch.ones(1, 1, dtype=x.dtype)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return x.matmul(h) / math.sqrt(n)


def norm(x, dims, keep, a):
    p = 2.0 if a["p"] is None else a["p"]
    if x.dim() == 0:
        return torch.linalg.vector_norm(x.reshape(1), p)
    return torch.linalg.vector_norm(x, p, dims, keep)


def embedding(a):
    return a["weight"][a["index"].long() - 1]


def adamw(a):
    own, wide = a["p"].dtype, a["m"].dtype  # PyTorch takes one dtype for all
    p, g, m, v = a["p"].to(wide, copy=True), a["g"].to(wide), a["m"], a["v"]
    number = lambda t: float(t) if torch.is_tensor(t) else t
    lr = 0.001 if a["lr"] is None else number(a["lr"])
    step, b1, b2 = number(a["step"]), a["beta1"] or 0.9, a["beta2"] or 0.999
    eps, decay = a["eps"] or 1e-8, 0.01 if a["weight_decay"] is None else a["weight_decay"]
    param = torch.nn.Parameter(p)
    param.grad = g.clone()
    state = torch.optim.AdamW([param], lr=lr, betas=(b1, b2), eps=eps, weight_decay=decay)
    state.state[param] = {"step": torch.tensor(step - 1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
    state.step()
    return param.data.to(own), state.state[param]["exp_avg"], state.state[param]["exp_avg_sq"]


def sgd(a):
    lr = 0.001 if a["lr"] is None else float(a["lr"])
    param = torch.nn.Parameter(a["p"].clone())
    param.grad = a["g"].clone()
    torch.optim.SGD([param], lr=lr).step()
    return param.data


def binary(fn):
    """PyTorch's function with numbers made 0-dim tensors where it wants tensors only."""
    def run(a):
        x, y = a["a"], a["b"]
        if not torch.is_tensor(x):
            x = torch.tensor(x, dtype=y.dtype)
        elif not torch.is_tensor(y):
            y = torch.tensor(y, dtype=x.dtype)
        return fn(x, y)
    return run


def where(a):
    c, x, y = a["condition"] != 0, a["a"], a["b"]
    numbers = [v for v in (x, y) if torch.is_tensor(v)]
    dtype = numbers[0].dtype if numbers else (torch.float64 if c.wide else torch.float32)
    make = lambda v: v if torch.is_tensor(v) else torch.tensor(v, dtype=dtype)
    return torch.where(c, make(x), make(y))


def simple(fn):
    return lambda a: fn(a["x"])


def operator(fn):
    return lambda a: fn(a["a"], a["b"])


OPS = {
    "add": operator(torch.add), "sub": operator(lambda a, b: a - b), "mul": operator(torch.mul), "div": operator(lambda a, b: a / b),
    "mod": mod, "pow": operator(torch.pow), "maximum": binary(torch.maximum), "minimum": binary(torch.minimum),
    "rsqrt": simple(torch.rsqrt), "relu": simple(torch.relu), "silu": simple(F.silu),
    "leaky_relu": lambda a: F.leaky_relu(a["x"], 0.01 if a["slope"] is None else a["slope"]),
    "softplus": lambda a: F.softplus(a["x"], a["beta"] or 1, 20 if a["threshold"] is None else a["threshold"]),
    "clamp": lambda a: torch.clamp(a["x"], a["lo"], a["hi"]),
    "gelu": lambda a: F.gelu(a["x"], approximate=a["approximate"] or "none"),
    "where": where, "masked_fill": lambda a: a["x"].expand(torch.broadcast_shapes(a["x"].shape, a["mask"].shape)).masked_fill(a["mask"] != 0, a["value"]),
    "cast": lambda a: a["x"].to(like(a["x"], a["dtype"])), "copy": lambda a: a["dst"].clone().copy_(a["src"]),
    "fill": lambda a: torch.full_like(a["t"], a["value"]), "zero": lambda a: torch.zeros_like(a["t"]),
    "full": lambda a: torch.full(listed(a["shape"]), a["value"], dtype=TORCH[a["dtype"] or "f32"]),
    "zeros": lambda a: torch.zeros(listed(a["shape"]), dtype=TORCH[a["dtype"] or "f32"]),
    "ones": lambda a: torch.ones(listed(a["shape"]), dtype=TORCH[a["dtype"] or "f32"]),
    "eye": lambda a: torch.eye(a["n"], a["n"] if a["m"] is None else a["m"], dtype=TORCH[a["dtype"] or "f32"]),
    "arange": lambda a: torch.arange(*([a["a"]] if a["b"] is None else [a["a"], a["b"]]), **({} if a["step"] is None else {"step": a["step"]}),
                                     dtype=torch.float64).to(TORCH[a["dtype"] or "f32"]),
    "linspace": lambda a: torch.linspace(a["a"], a["b"], a["steps"], dtype=torch.float64).to(TORCH[a["dtype"] or "f32"]),
    "reshape": lambda a: a["x"].reshape(listed(a["shape"])), "view": lambda a: a["x"].view(listed(a["shape"])),
    "flatten": lambda a: torch.flatten(a["x"], dim(a["start_dim"], 0), dim(a["end_dim"], -1)),
    "permute": lambda a: a["x"].permute(dim(a["dims"])), "transpose": lambda a: a["x"].transpose(dim(a["dim1"]), dim(a["dim2"])),
    "t": simple(torch.t), "narrow": lambda a: a["x"].narrow(dim(a["dim"]), dim(a["start"]), a["length"]),
    "select": lambda a: a["x"].select(dim(a["dim"]), dim(a["index"])),
    "squeeze": lambda a: squeeze(a["x"], a["dim"]), "unsqueeze": lambda a: a["x"].unsqueeze(dim(a["dim"])),
    "expand": lambda a: a["x"].expand(listed(a["shape"])), "broadcast_to": lambda a: torch.broadcast_to(a["x"], listed(a["shape"])),
    "contiguous": lambda a: a["x"].contiguous(), "split": lambda a: torch.split(a["x"], a["size"], dim(a["dim"], 0)),
    "chunk": lambda a: torch.chunk(a["x"], a["n"], dim(a["dim"], 0)), "concat": lambda a: torch.cat(a["tensors"], dim(a["dim"], 0)),
    "cat": lambda a: torch.cat(a["tensors"], dim(a["dim"], 0)),
    "stack": lambda a: torch.stack(promoted(a["tensors"]), dim(a["dim"], 0)),
    "flip": lambda a: torch.flip(a["x"], list(range(a["x"].dim())) if a["dim"] is None else listed(dim(a["dim"]))),
    "repeat": lambda a: a["x"].repeat(listed(a["counts"])), "tile": lambda a: torch.tile(a["x"], listed(a["counts"])),
    "repeat_interleave": lambda a: torch.repeat_interleave(a["x"], a["n"], dim(a["dim"])),
    "tril": lambda a: torch.tril(a["x"], a["k"] or 0), "triu": lambda a: torch.triu(a["x"], a["k"] or 0),
    "sum": reduced(lambda x, d, k, a: torch.sum(x, d, k)), "mean": reduced(lambda x, d, k, a: torch.mean(x, d, k)),
    "prod": reduced(one_by_one(torch.prod)), "any": reduced(one_by_one(torch.any, lambda x: x.bool())),
    "all": reduced(one_by_one(torch.all, lambda x: x.bool())), "max": extreme("max"), "min": extreme("min"), "argmax": argextreme("argmax"),
    "argmin": argextreme("argmin"),
    "var": reduced(lambda x, d, k, a: torch.var(x, d, correction=1 if a["correction"] is None else int(a["correction"]), keepdim=k)),
    "logsumexp": reduced(lambda x, d, k, a: torch.logsumexp(x if x.is_floating_point() else x.float(), d, k)),
    "cumsum": lambda a: torch.cumsum(a["x"], dim(a["dim"])), "norm": reduced(norm),
    "softmax": lambda a: torch.softmax(a["x"], dim(a["dim"], -1)), "log_softmax": lambda a: torch.log_softmax(a["x"], dim(a["dim"], -1)),
    "cross_entropy": cross_entropy,
    "layer_norm": lambda a: F.layer_norm(a["x"], listed(a["normalized_shape"]), a["weight"], a["bias"], a["eps"] or 1e-5), "rms_norm": rms_norm,
    "group_norm": group_norm, "sdpa": sdpa,
    "matmul": operator(torch.matmul),
    "addmm": lambda a: torch.addmm(a["c"], a["a"], a["b"], beta=1 if a["beta"] is None else a["beta"], alpha=1 if a["alpha"] is None else a["alpha"]),
    "linear": lambda a: a["x"].matmul(a["w"].t() if a["w"].dim() == 2 else a["w"]) + (0 if a["b"] is None else a["b"]),
    "hadamard_transform": hadamard, "gather": lambda a: torch.gather(a["x"], dim(a["dim"]), a["index"].long() - 1),
    "index_select": lambda a: torch.index_select(a["x"], dim(a["dim"]), a["index"].long() - 1),
    "scatter_add": scatter_add, "embedding": embedding,
    "one_hot": lambda a: F.one_hot(a["index"].long() - 1, a["classes"]), "sgd": sgd, "adamw": adamw,
    "logical_and": binary(torch.logical_and), "logical_or": binary(torch.logical_or),
}
for name in "neg abs sign exp expm1 log log1p sqrt square reciprocal sin cos tanh sigmoid erf floor ceil round logical_not isnan isfinite".split():
    OPS[name] = simple(getattr(torch, name))
for name in "eq ne lt le gt ge".split():
    OPS[name] = binary(getattr(torch, name))


def promoted(tensors):
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = torch.promote_types(dtype, t.dtype)
    return [t.to(dtype) for t in tensors]


def squeeze(x, dims):
    if dims is None:
        return x.squeeze()
    for d in sorted((d % max(x.dim(), 1) for d in listed(dim(dims))), reverse=True):
        x = x.squeeze(d)
    return x


class Bundle:
    def __init__(self, folder):
        self.folder, self.files = folder, {}
        with open(os.path.join(folder, "manifest.json")) as f:
            self.manifest = json.load(f)

    def array(self, ref):
        if ref["file"] not in self.files:
            with open(os.path.join(self.folder, ref["file"]), "rb") as f:
                self.files[ref["file"]] = f.read()
        count = math.prod(ref["shape"])
        return numpy.frombuffer(self.files[ref["file"]], NUMPY[ref["dtype"]], count, ref["offset"]).reshape(ref["shape"])

    def tensor(self, ref, wide):
        t = torch.from_numpy(self.array(ref).copy()).to(TORCH[ref["dtype"]])
        t = t.double() if wide and t.is_floating_point() else t
        return t


torch.Tensor.wide = False


def value(v):
    return float(v) if v in ("inf", "-inf", "nan") else v


def arguments(bundle, case, wide):
    """The arguments by name, and the leaves by position."""
    named, leaves = {}, {}
    wanted = {g["arg"] for g in case["gradients"]}

    def leaf(ref, k, item):
        t = bundle.tensor(ref, wide)
        if k in wanted and t.is_floating_point():
            t.requires_grad_(True)
            leaves[k, item] = t
        t.wide = wide
        return t

    for k, a in enumerate(case["args"], 1):
        if a["kind"] == "tensor":
            named[a["slot"]] = leaf(a["tensor"], k, None)
        elif a["kind"] == "tensors":
            named[a["slot"]] = [leaf(ref, k, i) for i, ref in enumerate(a["tensors"], 1)]
        else:
            named[a["slot"]] = value(a.get("value")) if not isinstance(a.get("value"), list) else a["value"]
    return named, leaves


def evaluate(bundle, case, wide):
    op = bundle.manifest["op"]
    named, leaves = arguments(bundle, case, wide)
    if op == "dropout":  # its mask is perilune's own
        x, p = named["x"], 0.5 if named["p"] is None else named["p"]
        kept = torch.from_numpy(bundle.array(case["results"][0]).copy()) != 0
        results = x * kept / (1 - p) if named["training"] is not False and p > 0 else x * 1
    else:
        results = OPS[op](named)
    return (results if isinstance(results, (tuple, list)) else (results,)), leaves


def gradients(bundle, case, results, leaves):
    roots = [(results[c["result"] - 1], bundle.tensor(c["tensor"], True)) for c in case["cotangents"]]
    roots = [(y, c.to(y.dtype)) for y, c in roots if y.requires_grad]
    if not roots:
        return {key: torch.zeros_like(t) for key, t in leaves.items()}
    found = torch.autograd.grad([y for y, _ in roots], list(leaves.values()), [c for _, c in roots], allow_unused=True)
    return {key: torch.zeros_like(t) if g is None else g for (key, t), g in zip(leaves.items(), found)}


def apart(got, want, rtol):
    """(agrees, max_abs, max_rel); NaN agrees with NaN only."""
    got, want = got.astype("f8"), want.astype("f8")
    if got.shape != want.shape:
        return False, math.inf, math.inf
    same = (got == want) | (numpy.isnan(got) & numpy.isnan(want))
    with numpy.errstate(invalid="ignore", divide="ignore"):
        d = numpy.where(same, 0, numpy.abs(got - want))
        relative = numpy.where(want != 0, d / numpy.abs(want), 0)
        good = same | (d <= rtol + rtol * numpy.abs(want))
    return bool(good.all()), float(d.max(initial=0)), float(relative.max(initial=0))


class Record:
    def __init__(self, maker):
        self.bytes, self.data = bytearray(), {"maker": maker, "numpy": numpy.__version__, "cases": []}

    def put(self, array, dtype, native=None):
        at = {"offset": len(self.bytes), "shape": list(array.shape), "dtype": dtype}
        if native:
            at["native"] = native
        self.bytes += numpy.ascontiguousarray(array).astype(NUMPY[dtype]).tobytes()
        return at

    def argument(self, bundle, a):
        put = lambda ref: self.put(bundle.array(ref), ref["dtype"])
        if a["kind"] == "tensor":
            return {**a, "tensor": put(a["tensor"])}
        if a["kind"] == "tensors":
            return {**a, "tensors": [put(ref) for ref in a["tensors"]]}
        return a

    def add(self, bundle, case, natives, results, grads):
        stored = lambda t: "f64" if t.is_floating_point() else NAMES[t.dtype]
        entry = {"op": bundle.manifest["op"], "sample": case["sample"], "dtype": case["dtype"],
                 "args": [self.argument(bundle, a) for a in case["args"]]}
        entry["results"] = [self.put(y.detach().numpy(), stored(y), NAMES[n.dtype]) for y, n in zip(results, natives)]
        entry["gradients"] = [{**{k: g[k] for k in ("arg", "item") if g.get(k) is not None},
                               "tensor": self.put(grads[g["arg"], g.get("item")].numpy(), "f64", g["tensor"]["dtype"])} for g in case["gradients"]]
        if any(bool(torch.isnan(t).any()) for t in list(results) + list(grads.values()) if t.is_floating_point()):
            entry["undefined"] = True
        self.data["cases"].append(entry)

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "torch.bin"), "wb") as f:
            f.write(self.bytes)
        with open(os.path.join(folder, "torch.json"), "w") as f:
            f.write("{\n" + "".join(f'"{k}": {json.dumps(v)},\n' for k, v in self.data.items() if k != "cases"))
            f.write('"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in self.data["cases"]) + "\n]}\n")


def check_case(bundle, case, record):
    """[(name, agrees, max_abs, max_rel, what is wrong)]"""
    natives, _ = evaluate(bundle, case, False)
    results, leaves = evaluate(bundle, case, True)
    grads = gradients(bundle, case, results, leaves)
    rows = []
    rtol = case["rtol"] + (1e-15 if case["dtype"] == "f64" else 1e-7)
    if len(results) != len(case["results"]):
        rows.append(("results", False, math.inf, math.inf, f"{len(case['results'])} instead of {len(results)}"))
    for k, (ref, y, native) in enumerate(zip(case["results"], results, natives), 1):
        good, a, r = apart(bundle.array(ref), y.detach().numpy(), rtol)
        wrong = None if good else f"apart by {a:.3g}"
        if NAMES[native.dtype] != ref["dtype"]:
            good, wrong = False, f"dtype {ref['dtype']} instead of {NAMES[native.dtype]}"
        rows.append((f"result {k}", good, a, r, wrong))
    for g in case["gradients"]:
        good, a, r = apart(bundle.array(g["tensor"]), grads[g["arg"], g.get("item")].numpy(), max(10 * case["rtol"], 1e-5))
        rows.append((f"gradient of {case['args'][g['arg'] - 1]['slot']}", good, a, r, None if good else f"apart by {a:.3g}"))
    if record:
        record.add(bundle, case, natives, results, grads)
    return rows


def check_bundle(folder, record):
    bundle = Bundle(folder)
    out = {"op": bundle.manifest["op"], "maker": bundle.manifest["maker"], "passed": 0, "failed": 0, "max_abs": 0.0, "max_rel": 0.0, "wrong": []}
    for case in bundle.manifest["cases"]:
        try:
            rows = check_case(bundle, case, record)
        except Exception as e:  # PyTorch refuses what perilune computed
            rows = [("PyTorch", False, 0.0, 0.0, f"{type(e).__name__}: {str(e).splitlines()[0]}")]
        for name, good, a, r, wrong in rows:
            out["passed" if good else "failed"] += 1
            out["max_abs"], out["max_rel"] = max(out["max_abs"], a), max(out["max_rel"], r)
            if not good:
                out["wrong"].append(f"{case['sample']} {case['dtype']}: {name}: {wrong}")
    return out


def main():
    parser = argparse.ArgumentParser(description="Replays perilune's oracle bundles in PyTorch.")
    parser.add_argument("dir")
    parser.add_argument("--report", metavar="FILE")
    parser.add_argument("--record", metavar="FOLDER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    maker = f"PyTorch {torch.__version__}"
    record = Record(maker) if args.record else None
    folders = sorted(os.path.join(args.dir, d) for d in os.listdir(args.dir) if os.path.exists(os.path.join(args.dir, d, "manifest.json")))
    ops = [check_bundle(folder, record) for folder in folders]
    passed, failed = sum(o["passed"] for o in ops), sum(o["failed"] for o in ops)
    for o in ops:
        print(f"{'PASS' if not o['failed'] else 'FAIL'} {o['op']}: {o['passed']} tensors agree, {o['failed']} do not, max_rel {o['max_rel']:.3g}")
        for wrong in o["wrong"]:
            print("  " + wrong)
    good = failed == 0 and passed > 0
    print(f"{'PASS' if good else 'FAIL'} {len(ops)} ops against {maker}: {passed} tensors agree, {failed} do not")
    if args.report:
        with open(args.report, "w") as f:
            json.dump({"maker": maker, "python": platform.python_version(), "pass": good, "passed": passed, "failed": failed, "ops": ops}, f, indent=1)
            f.write("\n")
    if record:
        record.write(args.record)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
