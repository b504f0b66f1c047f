#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes scikit-learn's bundled handwritten digits (1,797 images of 8x8, from the UCI repository) as a CSV for examples/digits.lua:

    python3 scripts/make_digits.py digits.csv

A line of names, then a line per image: 64 pixels of 0..16, row by row, and the digit."""

import sys

from sklearn.datasets import load_digits


def main(path):
    digits = load_digits()
    with open(path, "w") as file:
        file.write(",".join(f"pixel{i}" for i in range(64)) + ",digit\n")
        for image, digit in zip(digits.data, digits.target):
            file.write(",".join(str(int(v)) for v in image) + f",{digit}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
