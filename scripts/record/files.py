#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes small NPY and safetensors files by NumPy and the safetensors package, for spec/data/files_spec.lua:

    python3 scripts/record/files.py spec/data/files

The values are formulas that the spec repeats. `made_by` in the folder names the versions."""

import os
import sys

import numpy as np
import safetensors
from safetensors.numpy import save_file


def values(shape, dtype):
    n = int(np.prod(shape))
    flat = np.array([(7 * i) % 11 - 3 for i in range(n)], dtype=np.float64)
    kind = np.dtype(dtype).kind
    if kind == "u":
        flat += 3
    elif kind == "b":
        flat = flat > 0
    elif kind == "f":
        flat = flat * 0.5
    return flat.astype(dtype).reshape(shape)


def main(folder):
    def path(name):
        return os.path.join(folder, name)

    os.makedirs(folder, exist_ok=True)
    for code in "<f8 <f4 <f2 <i8 <i4 <i2 |i1 <u8 <u4 <u2 |u1 |b1 >f4 >i8 >f2".split():
        name = code.replace("<", "").replace("|", "").replace(">", "big_")
        np.save(path(name + ".npy"), values((2, 3), code))
    np.save(path("fortran.npy"), np.asfortranarray(values((2, 3, 4), "<f4")))
    np.save(path("vector.npy"), values((5,), "<f4"))
    np.save(path("scalar.npy"), values((), "<f4"))
    np.save(path("empty.npy"), values((0, 3), "<f4"))
    for version in (2, 3):
        with open(path(f"version{version}.npy"), "wb") as file:
            np.lib.format.write_array(file, values((2, 3), "<f4"), version=(version, 0))
    np.save(path("records.npy"), np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save(path("complex.npy"), np.zeros(2, dtype="<c8"))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 2.0**-24, 2.0**-14, 1.0009765625], dtype="<f2")
    np.save(path("half.npy"), special)

    own = {"weight": values((2, 3), "f4"), "double": values((2,), "f8"), "long": values((0, 3), "i8"), "int": values((4,), "i4"),
           "byte": values((3,), "u1"), "flag \u00fc \"quoted\"": values((), "?")}
    save_file(own, path("own.safetensors"), metadata={"note": "h\u00e9 \"x\"\n"})
    save_file({"half": special, "short": values((2, 3), "i2"), "char": values((3,), "i1"), "ulong": values((2,), "u8"),
               "uint": values((2,), "u4"), "ushort": values((2,), "u2")}, path("narrow.safetensors"))
    save_file({}, path("nothing.safetensors"))
    with open(path("made_by"), "w") as file:
        file.write(f"NumPy {np.__version__}, safetensors {safetensors.__version__}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
