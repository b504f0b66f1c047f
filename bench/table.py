# SPDX-License-Identifier: MIT
"""The table of a bench run: table.py FILE prints a results.json again."""

import json
import sys

PEERS = ("torch", "torch compiled", "jax", "numpy")


def amount(value, unit):
    if value is None:
        return ""
    if unit != "s":
        return f"{value:.4g} {unit}"
    for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if value >= size or size == 1e-9:
            return f"{value / size:.3g} {name}"


def cells(row):
    if "failed" in row:
        return [row["case"], "FAILED: " + row["failed"]]
    medians, unit = row["medians"], row["unit"]
    line = [row["case"], amount(medians["ours"], unit)]
    line += ["missing" if peer in row["missing"] else amount(medians.get(peer), unit) for peer in PEERS]
    others = [f"{name} {amount(value, unit)}" for name, value in medians.items() if name not in PEERS and name != "ours"]
    others += [f"{name} missing" for name in row["missing"] if name not in PEERS]
    line.append(", ".join(others))
    ratios = ["-" if r is None else amount(r, unit) if peer is None else f"{r:.3g} x {peer}" for r, peer in zip(row["ratios"], row["against"])]
    targets = ["<= " + amount(float(t[3:]), unit) if t.startswith("<= ") else t for t in row["targets"]]
    line += [", ".join(ratios), ", ".join(targets)]
    line.append(", ".join("unknown" if m is None else "yes" if m else "NO" for m in row["met"]))
    return line


def progress(row):
    print("  ".join(cells(row)), file=sys.stderr, flush=True)


def text(report):
    heads = ["case", "ours"] + list(PEERS) + ["other", "ratio", "target", "met"]
    lines = [heads] + [cells(row) for row in report["rows"]]
    widths = [max(len(line[k]) for line in lines if len(line) == len(heads)) for k in range(len(heads))]
    out = [f"{report['cpu']}, {report['cpus']} processors; " + ", ".join(f"{k} {v}" for k, v in report["versions"].items())]
    for line in lines:
        out.append("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + (" |" if len(line) == len(heads) else ""))
        if line is heads:
            out.append("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    met = [m for row in report["rows"] for m in row.get("met", [])]
    failed = sum("failed" in row for row in report["rows"])
    out.append(f"{met.count(True)} targets met, {met.count(False)} not met, {met.count(None)} unknown; {failed} cases failed")
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(text(json.load(file)))
